"""Two independent computations on two CUDA streams, while a CUDA graph is recorded. Otherwise they run one after the
other: outside of a graph, launches take longer than the kernels, and nothing would overlap."""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Frozen = TypeVar("Frozen")
Trained = TypeVar("Trained")


@functools.cache
def _side_streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Two streams of a device, created once: cuBLAS keeps a workspace for every stream."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _side_stream() -> torch.cuda.Stream:
    """A side stream other than the current stream."""
    current = torch.cuda.current_stream()
    first, second = _side_streams(current.device_index)
    return second if current == first else first


def beside(frozen: Callable[[], Frozen], trained: Callable[[], Trained]) -> tuple[Frozen, Trained]:
    """The results of both functions; `frozen` runs without gradients.

    While a CUDA graph is recorded, `frozen` runs in a second stream, so that the replayed graph overlaps it with
    `trained`.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        with torch.no_grad():
            first = frozen()
        return first, trained()
    main = torch.cuda.current_stream()
    side = _side_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side), torch.no_grad():
        first = frozen()
    second = trained()
    main.wait_stream(side)
    return first, second


def both(
    frozen: Callable[[Tensor], Frozen], trained: Callable[[Tensor], Trained], images: Tensor
) -> tuple[Frozen, Trained]:
    """The outputs of two networks for the same images (see `beside`): teacher and student, or old and new branch."""
    return beside(lambda: frozen(images), lambda: trained(images))
