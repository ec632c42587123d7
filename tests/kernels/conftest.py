import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from gluon_emulation import emulated_kernels

from foster.kernels import compilation, modules, weight_gradients


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels for weights, in the order in which they were started."""
    started: list[str] = []
    start = compilation.start

    def note(name: str, *arguments: Any, **options: Any) -> None:
        started.append(name)
        start(name, *arguments, **options)

    monkeypatch.setattr(weight_gradients, "start", note)
    return started


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors start as not-a-number, so that a place which a kernel does not write shows."""
    with torch.device("cpu"):
        torch.empty(0)  # torch lists its functions that make tensors when one is first called so; not those below
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *sizes, make=make, **options: make(*sizes, **options).fill_(math.nan))


@pytest.fixture
def emulation(monkeypatch: pytest.MonkeyPatch, poisoned_memory: None) -> Iterator[None]:
    """Kernels on the CPU, where all maps count as bfloat16 on a GPU."""
    monkeypatch.setattr(modules, "is_available", lambda: True)
    monkeypatch.setattr(modules, "_computes_in_bfloat16", lambda maps: maps.dtype is torch.bfloat16)
    with emulated_kernels():
        yield
