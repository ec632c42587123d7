"""Learning rates by hand, and what the optimizer trains."""

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from foster.networks import build_backbone
from foster.networks.network import Network
from foster.settings.fit import FitSettings
from foster.training.optim import Optimizer, learning_rate

CPU = torch.device("cpu")
BETAS = (0.8, 0.999)
MILESTONES = FitSettings(epochs=200, learning_rate=0.1, schedule="milestones", milestones=(60, 120, 170), decay=0.25)


@pytest.mark.parametrize("settings", [FitSettings(epochs=13), MILESTONES], ids=["cosine", "milestones"])
def test_the_rates_are_those_of_torch(settings: FitSettings) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=settings.learning_rate)
    scheduler: torch.optim.lr_scheduler.LRScheduler
    if settings.schedule == "cosine":
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
    else:
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(settings.milestones), settings.decay)
    for epoch in range(settings.epochs):
        assert learning_rate(settings, epoch) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9, abs=1e-15)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        (FitSettings(epochs=1, nesterov=True), lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True)),
        (FitSettings(epochs=1, head_rate=5), lambda groups: torch.optim.SGD(groups, momentum=0.9)),
        (FitSettings(epochs=1, optimizer="adam", momentum=0.8), lambda groups: torch.optim.Adam(groups, betas=BETAS)),
        (FitSettings(epochs=1, optimizer="adamw", head_rate=3), torch.optim.AdamW),
    ],
    ids=["nesterov", "head_rate", "adam", "adamw"],
)
def test_every_optimizer_is_torchs_with_rates_for_head_and_backbone(
    settings: FitSettings, make: Callable[[Any], torch.optim.Optimizer]
) -> None:
    network = Network.create(build_backbone("resnet8"), 3)
    expected = copy.deepcopy(network)
    ours = Optimizer(network, settings, CPU)
    head = list(expected.head.parameters())
    groups = [
        {"params": list(expected.branches.parameters()), "lr": 0.01, "weight_decay": settings.weight_decay},
        {"params": head, "lr": 0.01 * settings.head_rate, "weight_decay": settings.weight_decay},
    ]
    theirs = make(groups)
    ours.set_rate(0.01)
    for seed in range(3):
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        for module, optimizer in ((network, ours), (expected, theirs)):
            module(images).logits.square().sum().backward()
            optimizer.step()
        ours.drop_gradients()
        theirs.zero_grad()
    for (name, found), wanted in zip(network.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, msg=name)


def test_a_rate_rises_in_equal_steps_before_its_schedule() -> None:
    settings = FitSettings(epochs=6, learning_rate=0.4, warmup_epochs=3)
    assert [learning_rate(settings, epoch) for epoch in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.3, 0.1])
    falling = FitSettings(epochs=4, learning_rate=0.4, schedule="milestones", milestones=(2,), warmup_epochs=1)
    assert [learning_rate(falling, epoch) for epoch in range(4)] == pytest.approx([0.2, 0.4, 0.04, 0.04])


TRAINING = """
import sys, torch
from torch import nn
from foster.settings.fit import FitSettings
from foster.training.optim import Optimizer
layer = nn.Linear(1, 1)
optimizer = Optimizer(layer, FitSettings(epochs=1), torch.device("cpu"))
layer(torch.ones(1, 1)).sum().backward()
optimizer.step()
optimizer.drop_gradients()
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_training_does_not_wait_for_torchs_compiler_to_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_rate_is_changed_in_place_so_that_a_recorded_step_sees_it() -> None:
    layer = nn.Linear(1, 1, bias=False).cuda()
    nn.init.ones_(layer.weight)
    optimizer = Optimizer(layer, FitSettings(epochs=1, weight_decay=0, momentum=0), torch.device("cuda"))
    gradient = torch.full((1, 1), 2.0, device="cuda")
    layer.weight.grad = gradient
    optimizer.step()
    optimizer.state["momentum"][layer.weight].zero_()
    nn.init.ones_(layer.weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.weight.grad = gradient
        optimizer.step()
    for rate, expected in ((0.25, 0.5), (0.125, 0.25)):
        optimizer.set_rate(rate)
        graph.replay()
        assert layer.weight.item() == pytest.approx(expected)


@pytest.mark.parametrize(("longest", "expected"), [(None, 6.0), (0.0, 6.0), (10.0, 6.0), (2.0, 2.0)])
def test_gradients_that_are_too_long_are_shortened(longest: float | None, expected: float) -> None:
    network = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(network.weight)
    optimizer = Optimizer(network, FitSettings(epochs=1, learning_rate=1, weight_decay=0, max_gradient=longest), CPU)
    network.weight.grad = torch.tensor([[6.0, 0.0]])
    optimizer.step()
    assert network.weight.tolist() == [[pytest.approx(-expected, rel=1e-5), 0.0]]


def test_the_state_of_other_parameters_is_refused() -> None:
    optimizer = Optimizer(nn.Linear(2, 2), FitSettings(epochs=1, optimizer="adamw"), CPU)
    other = Optimizer(nn.Linear(2, 2, bias=False), FitSettings(epochs=1, optimizer="adamw"), CPU)
    with pytest.raises(ValueError, match="optimizer"):
        optimizer.restore(other.tensors())
