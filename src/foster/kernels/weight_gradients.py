"""Starts the kernels for the gradients of weights: one layer, or several of the same shape in one launch."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foster.kernels.compilation import start
from foster.kernels.epilogues import channels_last
from foster.kernels.launch import Strides, forward_geometry
from foster.kernels.tiles import MOST_LAYERS, gradient_tile
from foster.system.streams import beside


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
