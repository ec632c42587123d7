"""Launches the kernels of 3x3 convolutions and BatchNorm: shapes, grids and workspaces. Nothing here waits for the
device.

All maps are bfloat16 and channels last. All sums are float32, in a fixed order. Weights are contiguous or channels
last: in both layouts the nine taps of a window have a constant stride.

BatchNorm in training needs sums over all pixels before it can normalise one. So it has three parts: partial sums over
blocks of pixels (`partials`, float32 [2, channels, blocks]), which the convolution computes; a small kernel that
reduces them to a few numbers a channel (`coefficients`); and one pass over the maps that applies them. The backward
pass has the same three parts.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foster.kernels.compilation import start
from foster.kernels.tiles import NORM_ELEMENTS, Geometry, convolution_tile

NUM_WARPS = 4
FINISHING: dict[str, Any] = {"size": 512, "warps": NUM_WARPS, "num_warps": NUM_WARPS}
"""Options of the kernels that reduce partial sums: one program for each channel, 512 blocks at a time."""


class Norm(NamedTuple):
    """A BatchNorm: its parameters, its running statistics (updated in place in training), momentum and epsilon."""

    gamma: Tensor
    beta: Tensor
    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float


class Added(NamedTuple):
    """Maps [N, C, H, W] to add to a result that has `down` times fewer rows and columns, or `up` times more.

    Nothing is added to channels that the maps do not have and, with `up`, to result pixels between those of the maps.
    """

    maps: Tensor
    down: int = 1
    up: int = 1

    def shape(self, height: int, width: int) -> Geometry:
        """The geometry of the addition to a result of `height` x `width`."""
        _, channels, rows, columns = self.maps.shape
        return Geometry(channels, channels, rows, columns, height, width, self.down, self.up)


class Gate(NamedTuple):
    """A ReLU after a BatchNorm, given by the BatchNorm's input [N, C, H, W] and its coefficients. The backward pass
    computes again where the ReLU was positive."""

    maps: Tensor
    coefficients: Tensor


def channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def empty_maps(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Memory for bfloat16 maps [N, channels, height, width], channels last, on the device of `like`."""
    return torch.empty(
        (like.shape[0], channels, height, width),
        dtype=torch.bfloat16,
        device=like.device,
        memory_format=torch.channels_last,
    )


class Summed(NamedTuple):
    """Maps, and their partial sums: two sums for each channel and each block of pixels, float32 [2, channels,
    blocks]."""

    maps: Tensor
    partials: Tensor


def forward_geometry(images: Tensor, weight: Tensor, stride: int) -> Geometry:
    _, in_channels, height, width = images.shape
    out_height, out_width = ((size - 1) // stride + 1 for size in (height, width))
    return Geometry(in_channels, weight.shape[0], height, width, out_height, out_width, down=stride, up=1)


def backward_geometry(gradient: Tensor, weight: Tensor, stride: int, height: int, width: int) -> Geometry:
    """The geometry of the gradient of images [N, in, height, width], which is a convolution of the output's
    gradient."""
    out_channels, in_channels = weight.shape[:2]
    rows, columns = gradient.shape[2:]
    return Geometry(out_channels, in_channels, rows, columns, height, width, down=1, up=stride)


def convolve_with_statistics(images: Tensor, weight: Tensor, stride: int) -> Summed:
    """The convolution of images [N, in, H, W] with weight [out, in, 3, 3], with the partial sums of its stored values
    and of their squares, for BatchNorm."""
    geometry = forward_geometry(images, weight, stride)
    output, partials = _convolve(images, weight, Strides.forward(weight), geometry, has_partials=True)
    assert partials is not None
    return Summed(output, partials)


def convolve_frozen(
    images: Tensor, weight: Tensor, stride: int, norm: Norm, is_rectified: bool, added: Added | None = None
) -> Tensor:
    """Convolution, BatchNorm with running statistics, addition and ReLU in one kernel."""
    geometry = forward_geometry(images, weight, stride)
    strides = Strides.forward(weight)
    return _convolve(images, weight, strides, geometry, norm=norm, added=added, is_rectified=is_rectified)[0]


def input_gradient(
    gradient: Tensor, weight: Tensor, stride: int, height: int, width: int, added: Added | None = None
) -> Tensor:
    """The gradient of images [N, in, height, width] from that of the output, plus `added`."""
    geometry = backward_geometry(gradient, weight, stride, height, width)
    return _convolve(gradient, weight, Strides.backward(weight), geometry, added=added)[0]


def gated_input_gradient(gradient: Tensor, weight: Tensor, gate: Gate) -> Summed:
    """The gradient of the input of the ReLU before a convolution of stride 1.

    The partial sums are those that the gradient of the BatchNorm before the ReLU needs: of this gradient, and of its
    product with the BatchNorm's centred input.
    """
    geometry = backward_geometry(gradient, weight, 1, *gate.maps.shape[2:])
    output, partials = _convolve(gradient, weight, Strides.backward(weight), geometry, gate=gate, has_partials=True)
    assert partials is not None
    return Summed(output, partials)


class Strides(NamedTuple):
    """The strides of a weight in memory, by output channel, contraction index and tap, as a kernel sees them."""

    out: int
    into: int
    tap: int
    is_flipped: bool = False
    """Whether the taps are in reverse order, as the gradient of the input needs them."""

    @classmethod
    def forward(cls, weight: Tensor) -> "Strides":
        out, into, _, tap = weight.stride()
        return cls(out, into, tap)

    @classmethod
    def backward(cls, weight: Tensor) -> "Strides":
        out, into, tap, _ = cls.forward(weight)
        return cls(into, out, tap, is_flipped=True)


def _convolve(
    images: Tensor,
    weight: Tensor,
    strides: Strides,
    geometry: Geometry,
    *,
    norm: Norm | None = None,
    added: Added | None = None,
    is_rectified: bool = False,
    gate: Gate | None = None,
    has_partials: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Convolve, normalise, add, apply ReLU, apply the gate, store, and sum the stored values by channel, in this order.

    Returns the result, and its partial sums if `has_partials`.
    """
    images = channels_last(images)
    num_pixels = len(images) * geometry.out_height * geometry.out_width
    tile = convolution_tile(geometry, num_pixels)
    output = empty_maps(images, geometry.out_channels, geometry.out_height, geometry.out_width)
    num_blocks = math.ceil(num_pixels / tile.pixels)
    partials = None
    if has_partials:
        partials = torch.empty((2, geometry.out_channels, num_blocks), dtype=torch.float32, device=images.device)
    # An argument that is None is left out of the compiled kernel.
    start(
        "convolve",
        (num_blocks, geometry.out_channels // tile.channels),
        images,
        weight,
        output,
        num_pixels,
        norm,
        added and added.maps,
        gate,
        partials,
        shape=geometry,
        strides=strides,
        tile=tile,
        is_even=num_pixels % tile.pixels == 0,
        added_shape=added and added.shape(geometry.out_height, geometry.out_width),
        is_rectified=is_rectified,
        num_warps=tile.num_warps,
    )
    return output, partials


def num_pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[1]


def finish_statistics(summed: Summed, norm: Norm) -> Tensor:
    """The coefficients of a BatchNorm: mean, 1 / standard deviation, scale and shift of each channel, float32
    [4, channels].

    Updates the running statistics as `nn.BatchNorm2d` does, except `num_batches_tracked`: a fixed momentum does not use
    it, and counting would need another kernel.
    """
    count, channels = num_pixels(summed.maps), summed.maps.shape[1]
    coefficients = torch.empty((4, channels), dtype=torch.float32, device=summed.maps.device)
    start(
        "finish_statistics",
        (channels,),
        summed.partials,
        norm.gamma,
        norm.beta,
        norm.running_mean,
        norm.running_var,
        coefficients,
        summed.partials.shape[2],
        1 / count,
        count / (count - 1),
        norm.momentum,
        norm.eps,
        **FINISHING,
    )
    return coefficients


def normalise(maps: Tensor, coefficients: Tensor, is_rectified: bool, added: Added | None = None) -> Tensor:
    """ReLU of maps x scale + shift + `added`; without ReLU if not `is_rectified`."""
    channels, height, width = maps.shape[1:]
    output = empty_maps(maps, channels, height, width)
    start(
        "normalise",
        _grid(maps),
        maps,
        coefficients,
        added and added.maps,
        output,
        num_pixels(maps),
        added_shape=added and added.shape(height, width),
        is_rectified=is_rectified,
        **_tile(maps),
    )
    return output


def sum_gradient(gradient: Tensor, opened: Tensor | None, maps: Tensor, coefficients: Tensor) -> Summed:
    """The partial sums of the gradient of a BatchNorm's output, and of its product with the centred input `maps`.

    `opened` is the output of the ReLU after the BatchNorm; where it is 0, the gradient is 0. None: there is no ReLU.
    """
    (num_blocks,) = _grid(maps)
    partials = torch.empty((2, maps.shape[1], num_blocks), dtype=torch.float32, device=maps.device)
    start(
        "sum_gradient",
        (num_blocks,),
        gradient,
        opened,
        maps,
        coefficients,
        partials,
        num_pixels(maps),
        **_tile(maps),
    )
    return Summed(gradient, partials)


class NormGradient(NamedTuple):
    """The gradients of a BatchNorm's parameters, and the coefficients A, B and D of its input's gradient, float32
    [3, channels]."""

    gamma: Tensor
    beta: Tensor
    coefficients: Tensor


def finish_gradient(summed: Summed, gamma: Tensor, beta: Tensor, coefficients: Tensor) -> NormGradient:
    """Reduce the partial sums of `sum_gradient`, with the coefficients of the forward pass."""
    channels = len(gamma)
    result = NormGradient(
        torch.empty_like(gamma),
        torch.empty_like(beta),
        torch.empty((3, channels), dtype=torch.float32, device=gamma.device),
    )
    start(
        "finish_gradient",
        (channels,),
        summed.partials,
        coefficients,
        *result,
        summed.partials.shape[2],
        1 / num_pixels(summed.maps),
        **FINISHING,
    )
    return result


def pass_gradient(gradient: Tensor, opened: Tensor | None, maps: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of `maps`, A x gradient + B x maps + D, and the gradient behind the ReLU with the output
    `opened`."""
    result = empty_maps(maps, *maps.shape[1:])
    passed = None if opened is None else torch.empty_like(result)
    start(
        "pass_gradient",
        _grid(maps),
        gradient,
        opened,
        maps,
        coefficients,
        result,
        passed,
        num_pixels(maps),
        **_tile(maps),
    )
    return result, gradient if passed is None else passed


def _grid(maps: Tensor) -> tuple[int]:
    return (math.ceil(maps.numel() / NORM_ELEMENTS),)


def _tile(maps: Tensor) -> dict[str, int]:
    channels = maps.shape[1]
    return {"channels": channels, "pixels": NORM_ELEMENTS // channels, "warps": NUM_WARPS, "num_warps": NUM_WARPS}
