"""The operations that benchmarks/kernels.py times, with emulated kernels: what they return and what they move."""

import importlib
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from foster.kernels import compilation as starting
from foster.kernels import launch, norms, supports

FOLDER = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the package")

SHAPES = [(16, 16, 4, 1), (64, 64, 4, 1), (16, 32, 4, 2), (3, 64, 4, 1)]
"""Input and output channels, size and stride."""

MAPS_OF_ONE_SHAPE = {"forward": 2, "statistics": 2, "frozen": 2, "frozen +": 3, "input": 2, "input +": 3, "gated": 3}
MAPS_OF_ONE_SHAPE |= {"normalise": 2, "normalise +": 3, "sum grad": 3, "pass grad": 3, "pass grad +": 5}
"""How many maps each kernel reads and writes, counted by hand, where input and output have one shape."""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("kernels")
    for name in {"kernels", "block_operations", "head_operations"} - before:
        sys.modules.pop(name, None)


def test_kernels_without_a_second_input_set_are_refused(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kernels.py", "--sets", "1"])
    with pytest.raises(SystemExit) as ended:
        kernels.main()
    assert ended.value.code == 2
    assert "--sets 1: at least 2" in capsys.readouterr().err


def operations(kernels: ModuleType, shape: tuple[int, ...]) -> dict[str, Any]:
    case = kernels.make_case(kernels.Shape(*shape), batch_size=3, num_sets=4, device="cpu")
    traffic = case.images[0].nbytes + case.gradients[0].nbytes
    calls = kernels.our_calls(case).items()
    found = {name: kernels.Operation(call, case.expected[name], traffic) for name, call in calls}
    found |= kernels.operations_of(case)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("emulation")
def test_every_operation_returns_what_is_expected_of_it(kernels: ModuleType, shape: tuple[int, ...]) -> None:
    for name, operation in operations(kernels, shape).items():
        assert kernels.error(operation.call, operation.expected) < kernels.MOST_ERROR, name


@pytest.mark.usefixtures("emulation")
def test_layers_together_return_the_gradient_of_the_first(kernels: ModuleType) -> None:
    case = kernels.make_case(kernels.Shape(16, 16, 4), batch_size=3, num_sets=4, device="cpu")
    expected = case.expected["weight"]
    together = kernels.weights_in_batches(case.images, case.gradients, case.weight, 1, expected, num_layers=3)
    assert kernels.error(together.call, expected) < kernels.MOST_ERROR


@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.usefixtures("emulation")
def test_no_operation_gets_the_same_maps_twice_and_all_maps_count(
    kernels: ModuleType, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Tensor] = []

    def start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        # Some of what a kernel takes comes together, as a tuple.
        single = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in arguments)
        moved.extend(value for value in single if isinstance(value, Tensor) and value.dtype is torch.bfloat16)
        starting.start(kernel, grid, *arguments, **options)

    for module in (launch, norms):
        monkeypatch.setattr(module, "start", start)
    found = operations(kernels, (16, 16, 4, 1))
    for name, num_maps in MAPS_OF_ONE_SHAPE.items():
        moved.clear()
        found[name].call(index)
        assert len({maps.data_ptr() for maps in moved}) == len(moved) == num_maps, name
        assert sum(maps.nbytes for maps in moved) == found[name].num_bytes, name


def test_the_shapes_of_resnet18_are_among_those_that_the_kernels_know(kernels: ModuleType) -> None:
    for shape in (*kernels.SHAPES, *kernels.WIDE_SHAPES):
        images, weight = (64, shape.in_channels, shape.size, shape.size), (shape.out_channels, shape.in_channels, 3, 3)
        assert supports(images, weight, shape.stride)
