"""Independent computations side by side, in a recorded CUDA graph. Elsewhere one follows the other: outside a graph,
launches take longer than kernels, and there is nothing to overlap."""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Frozen = TypeVar("Frozen")
Trained = TypeVar("Trained")


@functools.cache
def _side_streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Made once for each device: libraries keep a workspace for every stream."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _side_stream() -> torch.cuda.Stream:
    """A stream beside the current one, which may be such a stream itself."""
    current = torch.cuda.current_stream()
    first, second = _side_streams(current.device_index)
    return second if current == first else first


def beside(frozen: Callable[[], Frozen], trained: Callable[[], Trained]) -> tuple[Frozen, Trained]:
    """The results of both, `frozen` without gradients.

    While a CUDA graph is recorded, `frozen` goes to a second stream, so that the replayed graph runs it beside
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
    """The outputs of both for the same images, as `beside`: of a teacher and a student, or an old and a new branch."""
    return beside(lambda: frozen(images), lambda: trained(images))
