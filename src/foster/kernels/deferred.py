"""Gradients of weights, which nobody needs before the optimizer, are computed once the backward pass is through: those
of all layers of a shape in one launch, which fills the chip. One by one they would hold up the layers before them."""

from collections import Counter
from contextvars import ContextVar, Token
from typing import NamedTuple

from torch import Tensor

from foster.kernels.weight_gradients import WeightGradient, fill_weight_gradients, weight_gradient


class _Deferred(NamedTuple):
    weight: Tensor
    computation: WeightGradient


class DeferredGradients:
    """Defers gradients of weights to its end. Inside, there is one backward pass, and nothing reads such a gradient:

        with DeferredGradients():
            loss = objective(images, labels)
            loss.backward()
        optimizer.step()

    A function whose weight's gradient may wait takes the `current` one in its forward pass, as backward passes run in a
    thread of their own, tells it of the weight by `count_use`, and asks it for the gradient by `of_weight`.
    """

    def __init__(self) -> None:
        self._num_uses: Counter[int] = Counter()
        self._deferred: list[_Deferred] = []
        self._token: Token[DeferredGradients | None] | None = None

    def __enter__(self) -> "DeferredGradients":
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        assert self._token is not None
        _current.reset(self._token)
        if kind is None:
            self.compute()
        else:
            self.discard()

    @staticmethod
    def current() -> "DeferredGradients | None":
        """The one whose `with` the caller is in."""
        return _current.get()

    def count_use(self, weight: Tensor) -> None:
        self._num_uses[id(weight)] += 1

    def of_weight(self, images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
        """The gradient for the weight: room that is filled later where it may wait, else computed at once."""
        if self._num_uses[id(weight)] != 1 or not is_kept_as_it_is(weight):
            return weight_gradient(images, gradient, weight, stride)
        computation = WeightGradient.of(images, gradient, weight, stride)
        result = computation.result
        # Autograd takes over a gradient that nobody else holds, and copies any other. Another view of its memory does
        # not count.
        self._deferred.append(_Deferred(weight, computation._replace(result=result.detach())))
        return result

    def compute(self) -> None:
        """Fills all gradients that were deferred."""
        try:
            for weight, computation in self._deferred:
                if weight.grad is not None and weight.grad.data_ptr() != computation.result.data_ptr():
                    raise RuntimeError(
                        f"the gradient of a weight {tuple(weight.shape)} was read before it was computed: "
                        "by a use of the weight outside of the kernels, or with create_graph"
                    )
            fill_weight_gradients([computation for _, computation in self._deferred])
        except BaseException:
            self.discard()
            raise
        self._forget()

    def discard(self) -> None:
        """Leaves no gradient behind that will not be filled."""
        for weight, _ in self._deferred:
            weight.grad = None
        self._forget()

    def _forget(self) -> None:
        self._deferred.clear()
        self._num_uses.clear()


def is_kept_as_it_is(weight: Tensor) -> bool:
    """Whether autograd will keep the only gradient of `weight`, with the weight's strides, without looking at it. A
    second one would be added to it; hooks and the functions before a weight that was computed would read it."""
    has_hooks = bool(weight._backward_hooks) or bool(getattr(weight, "_post_accumulate_grad_hooks", None))
    return weight.is_leaf and weight.grad is None and not has_hooks


_current: ContextVar[DeferredGradients | None] = ContextVar("current deferred gradients", default=None)
