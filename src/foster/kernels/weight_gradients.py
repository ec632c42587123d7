"""The gradients of weights. The optimizer is the first to need them, so they are deferred to the end of the backward
pass. There, one launch computes those of all layers of a shape, which fills the chip; computed one by one, they would
delay the layers before them."""

from collections import Counter
from collections.abc import Hashable, Sequence
from contextvars import ContextVar, Token
from typing import NamedTuple

import torch
from torch import Tensor

from foster.kernels.compilation import start
from foster.kernels.launch import Strides, channels_last, forward_geometry
from foster.kernels.tiles import MOST_LAYERS, gradient_tile
from foster.networks.streams import beside


class WeightGradient(NamedTuple):
    """What one layer's gradient is computed from: its images [N, in, H, W], the gradient of its output, both bfloat16
    and channels last, and its stride. `result` is room for the gradient, with the weight's shape, type and layout."""

    images: Tensor
    gradient: Tensor
    stride: int
    result: Tensor

    @classmethod
    def of(cls, images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> "WeightGradient":
        return cls(channels_last(images), channels_last(gradient), stride, torch.empty_like(weight))

    def kind(self) -> Hashable:
        """Equal for those that one launch can compute."""
        return self.images.shape, self.stride, self.result.shape, self.result.stride(), self.result.dtype


def weight_gradient(images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient for the weight, in the weight's type and memory layout. Sums in float32, always in one order."""
    layer = WeightGradient.of(images, gradient, weight, stride)
    _fill([layer])
    return layer.result


def fill_weight_gradients(layers: Sequence[WeightGradient]) -> None:
    """Computes the results of all, with two launches for each kind of layer.

    One layer alone does not fill the chip: such kinds run beside those of many layers.
    """
    by_kind: dict[Hashable, list[WeightGradient]] = {}
    for layer in layers:
        by_kind.setdefault(layer.kind(), []).append(layer)
    alone = [of_kind for of_kind in by_kind.values() if len(of_kind) == 1]
    together = [of_kind for of_kind in by_kind.values() if len(of_kind) > 1]
    beside(lambda: _fill_kinds(alone), lambda: _fill_kinds(together))


def _fill_kinds(kinds: Sequence[Sequence[WeightGradient]]) -> None:
    for of_kind in kinds:
        for first in range(0, len(of_kind), MOST_LAYERS):
            _fill(of_kind[first : first + MOST_LAYERS])


def _fill(layers: Sequence[WeightGradient]) -> None:
    """Computes the results of layers of one kind."""
    from foster.kernels import device

    images, result = layers[0].images, layers[0].result
    geometry = forward_geometry(images, result, layers[0].stride)
    tile = gradient_tile(geometry, len(layers))
    num_pixels = len(images) * geometry.out_height * geometry.out_width
    shares = tile.shares(num_pixels, geometry.num_taps, len(layers))
    shape = (len(layers), shares.num_shares, geometry.num_taps, geometry.out_channels, geometry.depth)
    partial_sums = torch.empty(shape, dtype=torch.float32, device=images.device)
    start(
        device.weight_gradients,
        (shares.num_shares, geometry.num_taps // tile.taps, len(layers)),
        tuple(layer.images for layer in layers),
        tuple(layer.gradient for layer in layers),
        partial_sums,
        num_pixels,
        shares.num_blocks,
        shares.blocks_per_share,
        num_layers=len(layers),
        shape=geometry,
        tile=tile,
        is_even=num_pixels % (tile.groups * tile.pixels) == 0,
        num_warps=tile.num_warps,
    )
    rows = 1 << (shares.num_shares - 1).bit_length()
    elements = min(256, max(32, 8192 // rows))
    start(
        device.sum_partial_sums,
        (partial_sums[0, 0].numel() // elements, len(layers)),
        partial_sums,
        tuple(layer.result for layer in layers),
        shares.num_shares,
        num_layers=len(layers),
        in_channels=geometry.in_channels,
        out_channels=geometry.out_channels,
        strides=Strides.forward(result),
        rows=rows,
        elements=elements,
        warps=4,
        num_warps=4,
    )


class ReadTooEarlyError(RuntimeError):
    """A deferred gradient was read before it was computed."""


class _Deferred(NamedTuple):
    weight: Tensor
    computation: WeightGradient


class DeferredGradients:
    """Defers gradients of weights to its end. Inside there is one backward pass, and nothing reads a deferred gradient:

        with DeferredGradients():
            loss = objective(images, labels)
            loss.backward()
        optimizer.step()

    In its forward pass, a function takes the `current` one (backward passes run in another thread) and reports its
    weight by `count_use`; in its backward pass it gets the gradient by `of_weight`.
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
        """The one inside whose `with` the caller is; None outside."""
        return _current.get()

    def count_use(self, weight: Tensor) -> None:
        self._num_uses[id(weight)] += 1

    def of_weight(self, images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
        """The gradient for the weight: memory that is filled later where it can be deferred, else computed at once."""
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
                    raise ReadTooEarlyError(
                        f"the gradient of a weight {tuple(weight.shape)} was read before it was computed: "
                        "by a use of the weight outside of the kernels, or with create_graph"
                    )
            fill_weight_gradients([computation for _, computation in self._deferred])
        except BaseException:
            self.discard()
            raise
        self._forget()

    def discard(self) -> None:
        """Drops the gradients that were deferred."""
        for weight, _ in self._deferred:
            weight.grad = None
        self._forget()

    def _forget(self) -> None:
        self._deferred.clear()
        self._num_uses.clear()


def is_kept_as_it_is(weight: Tensor) -> bool:
    """Whether autograd will keep the gradient of `weight` without reading it. A second gradient would be added to it;
    hooks, and the functions from which a weight is computed, would read it."""
    has_hooks = bool(weight._backward_hooks) or bool(getattr(weight, "_post_accumulate_grad_hooks", None))
    return weight.is_leaf and weight.grad is None and not has_hooks


_current: ContextVar[DeferredGradients | None] = ContextVar("current deferred gradients", default=None)
