"""Starts the 3x3 convolution kernels: geometry, tile sizes, grids and workspaces. Nothing here waits for the device.

Weights are contiguous or channels last: in both, the nine taps of a window lie at equal distances.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Geometry(NamedTuple):
    """Shapes of a convolution without the number of images. The output has `down` times fewer rows and columns than
    the input, or `up` times more."""

    in_channels: int
    out_channels: int
    in_height: int
    in_width: int
    out_height: int
    out_width: int
    down: int
    up: int

    @property
    def depth(self) -> int:
        """Length of one contraction: a tap's channels, or all 27 places under a window on 3 channels, filled up."""
        return 32 if self.in_channels == 3 else self.in_channels

    @property
    def num_taps(self) -> int:
        return 1 if self.in_channels == 3 else 9


class ConvolutionTile(NamedTuple):
    """What one program computes: `pixels` x `channels` of the output, shared among its warps."""

    pixels: int
    channels: int
    warps_pixels: int
    warps_channels: int = 1
    taps_ahead: int = 9
    """Taps whose loads are sent off first; more hide more latency and take more registers."""

    @property
    def num_warps(self) -> int:
        return self.warps_pixels * self.warps_channels


class GradientTile(NamedTuple):
    """What one program sums up: `taps` of the weight's gradient over its share of the pixels, `groups` x `pixels` at a
    time; each group has `warps_out` x `warps_in` warps."""

    pixels: int
    groups: int
    taps: int
    warps_out: int = 1
    warps_in: int = 1
    num_shares: int = 44
    """Shares of the pixels. More keep more of the chip busy and make more partial sums to add up."""

    @property
    def num_warps(self) -> int:
        return self.groups * self.warps_out * self.warps_in


CONVOLUTION_TILES: dict[tuple[int, int], ConvolutionTile] = {
    (3, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4),
    (16, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4, taps_ahead=3),
    (32, 32): ConvolutionTile(pixels=128, channels=32, warps_pixels=4, taps_ahead=3),
    (64, 64): ConvolutionTile(pixels=128, channels=32, warps_pixels=4, taps_ahead=3),
}
"""By input and output channels: the fastest of those that benchmarks/kernels.py tries, batch 128, on an H200."""

GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (3, 16): GradientTile(pixels=32, groups=8, taps=1, num_shares=132),
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_shares=264),
    (32, 32): GradientTile(pixels=16, groups=4, taps=3, warps_in=2, num_shares=88),
    (64, 64): GradientTile(pixels=16, groups=2, taps=3, warps_out=2, warps_in=4, num_shares=44),
}


def convolution_tile(geometry: Geometry) -> ConvolutionTile:
    tile = CONVOLUTION_TILES.get((geometry.in_channels, geometry.out_channels))
    return tile or ConvolutionTile(pixels=128, channels=min(geometry.out_channels, 32), warps_pixels=4, taps_ahead=3)


def gradient_tile(geometry: Geometry) -> GradientTile:
    tile = GRADIENT_TILES.get((geometry.in_channels, geometry.out_channels))
    if tile:
        return tile
    warps_out, warps_in = max(1, geometry.out_channels // 32), max(1, geometry.depth // 32)
    return GradientTile(16, 4, min(geometry.num_taps, 3), warps_out, warps_in, num_shares=44)


def forward_geometry(images: Tensor, weight: Tensor, stride: int) -> Geometry:
    _, in_channels, height, width = images.shape
    out_height, out_width = ((size - 1) // stride + 1 for size in (height, width))
    return Geometry(in_channels, weight.shape[0], height, width, out_height, out_width, down=stride, up=1)


def convolve(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The convolution of images [N, in, H, W] with weight [out, in, 3, 3]: bfloat16, channels last."""
    geometry = forward_geometry(images, weight, stride)
    return _convolve(images, _Taps.forward(weight), geometry, convolution_tile(geometry))


def input_gradient(gradient: Tensor, weight: Tensor, stride: int, height: int, width: int) -> Tensor:
    """The gradient for the images [N, in, height, width] from that of the output: a convolution, too."""
    out_channels, in_channels = weight.shape[:2]
    rows, columns = gradient.shape[2:]
    geometry = Geometry(out_channels, in_channels, rows, columns, height, width, down=1, up=stride)
    return _convolve(gradient, _Taps.backward(weight), geometry, convolution_tile(geometry))


def weight_gradient(images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient for the weight, in the weight's type and memory layout. Sums in float32, always in one order."""
    from foster.kernels import device

    images, gradient = _channels_last(images), _channels_last(gradient)
    geometry = forward_geometry(images, weight, stride)
    tile = gradient_tile(geometry)
    num_pixels = len(images) * geometry.out_height * geometry.out_width
    num_blocks = math.ceil(num_pixels / (tile.groups * tile.pixels))
    blocks_per_program = math.ceil(num_blocks / tile.num_shares)
    num_shares = math.ceil(num_blocks / blocks_per_program)
    shape = (num_shares, geometry.num_taps, geometry.out_channels, geometry.depth)
    partial_sums = torch.empty(shape, dtype=torch.float32, device=images.device)
    device.weight_gradient[(num_shares, geometry.num_taps // tile.taps)](
        images,
        gradient,
        partial_sums,
        num_pixels,
        num_blocks,
        blocks_per_program,
        **geometry._asdict(),
        is_even=num_pixels % (tile.groups * tile.pixels) == 0,
        pixels=tile.pixels,
        groups=tile.groups,
        taps=tile.taps,
        warps_out=tile.warps_out,
        warps_in=tile.warps_in,
        num_warps=tile.num_warps,
    )
    result = torch.empty_like(weight)
    rows = 1 << (num_shares - 1).bit_length()
    elements = min(256, max(32, 8192 // rows))
    device.sum_partial_sums[(partial_sums[0].numel() // elements,)](
        partial_sums,
        result,
        num_shares,
        in_channels=geometry.in_channels,
        out_channels=geometry.out_channels,
        **_Taps.forward(result).strides(),
        rows=rows,
        elements=elements,
        warps=4,
        num_warps=4,
    )
    return result


class _Taps(NamedTuple):
    """A weight as the kernel reads it: from output channel, contraction index and tap to a place in memory."""

    weight: Tensor
    stride_out: int
    stride_in: int
    stride_tap: int
    is_flipped: bool

    @classmethod
    def forward(cls, weight: Tensor) -> "_Taps":
        stride_out, stride_in, _, stride_tap = weight.stride()
        return cls(weight, stride_out, stride_in, stride_tap, False)

    @classmethod
    def backward(cls, weight: Tensor) -> "_Taps":
        taps = cls.forward(weight)
        return taps._replace(stride_out=taps.stride_in, stride_in=taps.stride_out, is_flipped=True)

    def strides(self) -> dict[str, int]:
        return {"stride_out": self.stride_out, "stride_in": self.stride_in, "stride_tap": self.stride_tap}


def _convolve(images: Tensor, taps: _Taps, geometry: Geometry, tile: ConvolutionTile) -> Tensor:
    from foster.kernels import device

    images = _channels_last(images)
    output = empty_maps(images, geometry.out_channels, geometry.out_height, geometry.out_width)
    num_pixels = len(images) * geometry.out_height * geometry.out_width
    options: dict[str, Any] = {**geometry._asdict(), **taps.strides(), **tile._asdict()}
    options["taps_ahead"] = min(tile.taps_ahead, geometry.num_taps)
    device.convolve[(math.ceil(num_pixels / tile.pixels), geometry.out_channels // tile.channels)](
        images,
        taps.weight,
        output,
        num_pixels,
        is_flipped=taps.is_flipped,
        is_even=num_pixels % tile.pixels == 0,
        num_warps=tile.num_warps,
        **options,
    )
    return output


def empty_maps(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Room for bfloat16 maps [N, channels, height, width], channels last, beside `like`."""
    return torch.empty(
        (like.shape[0], channels, height, width),
        dtype=torch.bfloat16,
        device=like.device,
        memory_format=torch.channels_last,
    )


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)
