"""Independent computations side by side, where the device can overlap them: while a CUDA graph is recorded.

Elsewhere one follows the other: outside a graph the launches, not the kernels, set the pace.
"""

import functools
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TypeVar

import torch
from torch import Tensor

Frozen = TypeVar("Frozen")
Trained = TypeVar("Trained")


@functools.cache
def _side_streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Made once for each device: libraries keep a workspace for every stream they meet."""
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
    if not _is_recording():
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


class WeightGradients:
    """Lets the gradients of weights, which nobody needs before the optimizer, run beside the rest of the backward pass.

    Who makes one promises that nothing reads a gradient of a weight before `join`:

        with WeightGradients() as weight_gradients:
            loss = objective(images, labels)
        loss.backward()
        weight_gradients.join()
        optimizer.step()

    A function whose weight's gradient may go aside takes the `current` one in its forward pass, as backward passes run
    in a thread of their own, tells it of the weight by `count_use`, and computes the gradient by `compute`.
    """

    def __init__(self) -> None:
        self._num_uses: Counter[int] = Counter()
        self._read: list[Tensor] = []
        self._side: torch.cuda.Stream | None = None
        self._token: Token[WeightGradients | None] | None = None

    def __enter__(self) -> "WeightGradients":
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        _current.reset(self._token)

    @staticmethod
    def current() -> "WeightGradients | None":
        """The one whose `with` the caller is in."""
        return _current.get()

    def count_use(self, weight: Tensor) -> None:
        self._num_uses[id(weight)] += 1

    def may_go_aside(self, weight: Tensor) -> bool:
        """Whether autograd will keep the gradient as it is. A second gradient would be added to it, and that would not
        wait for the side stream."""
        return _is_recording() and weight.grad is None and self._num_uses[id(weight)] == 1

    def compute(self, gradient: Callable[..., Tensor], weight: Tensor, *read: Tensor) -> Tensor:
        """gradient(*read), on the side stream where that is safe."""
        if not self.may_go_aside(weight):
            return gradient(*read)
        if self._side is None:
            self._side = _side_stream()
        self._side.wait_stream(torch.cuda.current_stream())
        # Memory that the side stream still reads must not be handed out again on the main stream. The result is not
        # kept: autograd takes over a gradient that nobody else holds, and copies any other.
        self._read.extend(read)
        with torch.cuda.stream(self._side):
            return gradient(*read)

    def join(self) -> None:
        """Makes the current stream wait for all gradients. To be called once the backward pass is through."""
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)
        self._side = None
        self._read.clear()
        self._num_uses.clear()


_current: ContextVar[WeightGradients | None] = ContextVar("current weight gradients", default=None)


def _is_recording() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
