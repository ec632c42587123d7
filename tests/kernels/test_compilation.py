"""Kernels that are compiled side by side, each once, before any of them runs."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from block_reference import (
    Shape,
    make_block,
    random_maps,
)

from foster.kernels import compilation as starting
from foster.kernels import compiled_side_by_side, use_kernels


@pytest.mark.usefixtures("emulation")
def test_kernels_that_are_compiled_side_by_side_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(starting, "_compile", compiled.extend)
    blocks = [use_kernels(make_block("same")) for _ in range(2)]
    maps = random_maps(Shape(2, 16, 4, 4))
    before = copy.deepcopy(blocks[0].state_dict())
    with compiled_side_by_side():
        blocks[1](blocks[0](maps)).sum().backward()
        assert not compiled
    assert all(torch.equal(value, before[name]) for name, value in blocks[0].state_dict().items())
    kernels = Counter(start.kernel.function.__name__ for start in compiled)
    # Once each, however many blocks there are. Convolutions: with statistics, of a gradient gated, and plus the
    # shortcut's; normalisation with and without the shortcut; a gradient passed on through a ReLU and without.
    assert kernels == {
        "convolve": 3,
        "finish_statistics": 1,
        "normalise": 2,
        "sum_gradient": 1,
        "finish_gradient": 1,
        "pass_gradient": 2,
        "weight_gradients": 1,
        "sum_partial_sums": 1,
    }
    assert blocks[0](maps).isfinite().all()
