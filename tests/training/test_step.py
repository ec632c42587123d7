"""One optimizer step as it is written: what it changes, what it sums up, and what it leaves behind."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foster.data.feed import Batch
from foster.errors import TrainingError
from foster.settings.fit import FitSettings
from foster.system.processes import ProcessGroup
from foster.training.engine import Engine
from foster.training.optim import Optimizer
from foster.training.step import Step

CPU = torch.device("cpu")
ENGINE = Engine(CPU, (0.5,) * 3, (0.25,) * 3)


class OneNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))


def batch(count: int, device: str = "cpu") -> Batch:
    pixels = torch.zeros(count, 3, 2, 2, dtype=torch.uint8, device=device)
    return Batch(pixels, torch.zeros(count, dtype=torch.int64, device=device))


def test_a_step_minimises_the_sum_of_all_terms_and_sums_each_up_by_images() -> None:
    network, sizes = OneNumber(), []
    seen: list[float] = []

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        seen.append(float(images.max()))
        return {"L_A": 2 * network.weight, "L_B": network.weight.square()}

    optimizer = Optimizer(network, FitSettings(epochs=1, learning_rate=0.1, momentum=0, weight_decay=0), CPU)
    step = Step(network, objective, optimizer, ENGINE, sizes.append)
    step(batch(3))
    # The gradient of 2 w + w^2 at 1 is 4.
    assert network.weight.item() == pytest.approx(0.6)
    assert network.weight.grad is None
    step(batch(2))
    assert step.term_names == ("L_A", "L_B")
    assert step.loss_sums.tolist() == pytest.approx([3 * 2 + 2 * 1.2, 3 * 1 + 2 * 0.36])
    assert step.loss_sums.dtype == torch.float64
    assert seen == [-2.0, -2.0], "the objective sees normalised images: (0 - 0.5) / 0.25"
    assert sizes == [3, 2]


def test_what_was_there_before_a_recording_comes_back_in_place() -> None:
    network = OneNumber()
    optimizer = Optimizer(network, FitSettings(epochs=1, learning_rate=0.1), CPU)
    step = Step(network, lambda images, labels: {"L": network.weight.square()}, optimizer, ENGINE)
    step(batch(2))
    weight, momentum = network.weight.item(), optimizer.state["momentum"][network.weight].item()
    sums, restore = step.loss_sums, step._snapshot()
    step(batch(2))
    assert network.weight.item() != weight
    restore()
    assert (network.weight.item(), optimizer.state["momentum"][network.weight].item()) == (weight, momentum)
    assert step.loss_sums is sums, "a recording writes to the very same memory"
    assert sums.tolist() == [2.0]


NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_gradients_and_losses_are_averaged_over_all_processes_inside_the_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NCCL wants a GPU for each process: this one stands for two, and the other has neither loss nor gradient.
    for module in ("system.processes", "training.distributed", "training.step"):
        monkeypatch.setattr(f"foster.{module}.process_group", lambda: ProcessGroup(0, 2))
    device, network = torch.device(name), OneNumber().to(name)
    engine = Engine(device, (0.5,) * 3, (0.25,) * 3, capture=name == "cuda")
    optimizer = Optimizer(network, FitSettings(epochs=1, learning_rate=0.1, momentum=0, weight_decay=0), device)
    step = Step(network, lambda images, labels: {"L": 4 * network.weight}, optimizer, engine, num_sharing=2)
    store = f"file://{tmp_path / 'store'}"
    backend = "cpu:gloo,cuda:nccl" if name == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
    try:
        if engine.capture:
            step.record([3], lambda size: batch(size, name))
        step(batch(3, name))
        assert network.weight.item() == pytest.approx(0.8)
        assert step.loss_sums.tolist() == pytest.approx([4 / 2 * 6])
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (torch.ones(()), r"not a tensor of shape \(\)"),
        ({"L_A": torch.ones((), requires_grad=True), "L_B": torch.ones(4)}, r"'L_B': a tensor of shape \(4,\)"),
        ({"L_A": 0.5}, "'L_A': a float"),
        ({}, "by name"),
    ],
)
def test_an_objective_that_returns_no_scalars_by_name_is_told_what_to_return(returned: Any, told: str) -> None:
    network = OneNumber()
    step = Step(network, lambda images, labels: returned, Optimizer(network, FitSettings(epochs=1), CPU), ENGINE)
    with pytest.raises(TrainingError, match=told):
        step(batch(2))
