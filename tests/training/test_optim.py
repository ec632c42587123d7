"""Learning rates by hand, and what the optimizer trains."""

import math

import pytest
import torch
from torch import nn

from foster.method_settings import FitSettings
from foster.training.optim import learning_rate, make_optimizer, set_learning_rate

CPU = torch.device("cpu")
MILESTONES = FitSettings(epochs=200, learning_rate=0.1, schedule="milestones", milestones=(60, 120, 170))


@pytest.mark.parametrize(
    ("epoch", "rate"), [(0, 0.1), (59, 0.1), (60, 0.01), (119, 0.01), (120, 1e-3), (169, 1e-3), (170, 1e-4)]
)
def test_a_milestone_multiplies_the_rate_from_its_epoch_on(epoch: int, rate: float) -> None:
    assert learning_rate(MILESTONES, epoch) == pytest.approx(rate, rel=1e-12)


def test_another_decay_is_used_at_every_milestone() -> None:
    settings = FitSettings(epochs=3, learning_rate=8, schedule="milestones", milestones=(1, 2), decay=0.25)
    assert [learning_rate(settings, epoch) for epoch in range(3)] == [8, 2, 0.5]


def test_a_cosine_falls_from_the_full_rate_through_half_of_it_towards_zero() -> None:
    settings = FitSettings(epochs=6, learning_rate=0.4)
    root = math.sqrt(3) / 2
    expected = [0.4, 0.2 * (1 + root), 0.3, 0.2, 0.1, 0.2 * (1 - root)]
    assert [learning_rate(settings, epoch) for epoch in range(6)] == pytest.approx(expected, rel=1e-12)


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


def test_everything_that_is_trained_is_decayed_and_nothing_else_is_touched() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Linear(2, 2))
    network[2].requires_grad_(False)
    settings = FitSettings(epochs=1, learning_rate=0.5, weight_decay=0.1, momentum=0.7)
    optimizer = make_optimizer(network, settings, CPU)
    (group,) = optimizer.param_groups
    assert group["params"] == [*network[0].parameters(), *network[1].parameters()]
    assert (group["lr"], group["weight_decay"], group["momentum"], group["nesterov"]) == (0.5, 0.1, 0.7, False)


def test_two_steps_by_hand() -> None:
    """w = 1, gradient 2 and decay 0.5: v1 = 2.5, w1 = 1 - 0.1 v1 = 0.75; v2 = 0.9 v1 + 2.375, w2 = w1 - 0.2 v2."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    optimizer = make_optimizer(layer, FitSettings(epochs=1, weight_decay=0.5, momentum=0.9), CPU)
    for rate, expected in ((0.1, 0.75), (0.2, 0.75 - 0.2 * (0.9 * 2.5 + 2 + 0.5 * 0.75))):
        set_learning_rate(optimizer, rate)
        layer.weight.grad = torch.full((1, 1), 2.0)
        optimizer.step()
        assert layer.weight.item() == pytest.approx(expected, rel=1e-6)


def test_a_rate_that_is_a_tensor_is_filled_in_place_so_that_a_recorded_step_sees_it() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate)
    set_learning_rate(optimizer, 0.025)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.025)
