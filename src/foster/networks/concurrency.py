"""Two independent computations side by side, where the device can overlap them."""

from collections.abc import Callable
from typing import TypeVar

import torch

Frozen = TypeVar("Frozen")
Trained = TypeVar("Trained")


def beside(frozen: Callable[[], Frozen], trained: Callable[[], Trained]) -> tuple[Frozen, Trained]:
    """The results of both, `frozen` without gradients.

    While a CUDA graph is recorded, `frozen` goes to a second stream, so that the replayed graph runs it beside
    `trained`. Elsewhere one follows the other: outside a graph the launches, not the kernels, set the pace.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        with torch.no_grad():
            first = frozen()
        return first, trained()
    main = torch.cuda.current_stream()
    side = torch.cuda.Stream()
    side.wait_stream(main)
    with torch.cuda.stream(side), torch.no_grad():
        first = frozen()
    second = trained()
    main.wait_stream(side)
    return first, second
