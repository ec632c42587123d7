"""Which 3x3 convolutions have a kernel, and the tile sizes of each kernel.

For 3 to 64 channels, cuDNN's kernels take 5 to 15 times as long as the memory traffic alone. Our kernels take bfloat16
maps, channels last, and weights of any floating type, without a cast before the launch. They accumulate in float32.
"""

import math
from collections import ChainMap
from collections.abc import Sequence
from typing import NamedTuple

IN_CHANNELS = (3, 16, 32, 64)
OUT_CHANNELS = (16, 32, 64)
STRIDES = (1, 2)


def supports(image_shape: Sequence[int], weight_shape: Sequence[int], stride: int = 1) -> bool:
    """Whether there is a kernel for images [N, in, H, W] and a weight [out, in, 3, 3], padding 1."""
    out_channels, in_channels, *window = weight_shape
    num_images, image_channels, height, width = image_shape
    is_known = in_channels in IN_CHANNELS and out_channels in OUT_CHANNELS and stride in STRIDES and window == [3, 3]
    # The kernels use 32-bit indices.
    return (
        is_known
        and image_channels == in_channels
        and 0 < num_images * height * width * max(out_channels, in_channels) < 2**31
    )


class Geometry(NamedTuple):
    """The shape of a convolution, without the batch size. The input is `down` times higher and wider than the output,
    or the output is `up` times higher and wider than the input (the gradient of a strided convolution)."""

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
        """The length of one contraction: the input channels of one tap. With 3 input channels, all nine taps form one
        contraction of 27, padded to 32."""
        return 32 if self.in_channels == 3 else self.in_channels

    @property
    def num_taps(self) -> int:
        return 1 if self.in_channels == 3 else 9


class ConvolutionTile(NamedTuple):
    """The tile of one program: `pixels` x `channels` of the output, divided among its warps."""

    pixels: int
    channels: int
    warps_pixels: int
    warps_channels: int = 1
    taps_ahead: int = 9
    """How many taps are loaded before the first is used. More taps hide more latency and need more registers."""

    @property
    def num_warps(self) -> int:
        return self.warps_pixels * self.warps_channels


class GradientTile(NamedTuple):
    """The tile of one program: `taps` of the weight's gradient, summed over a share of the pixels, `groups` x `pixels`
    at a time. Each group has `warps_out` x `warps_in` warps."""

    pixels: int
    groups: int
    taps: int
    warps_out: int = 1
    warps_in: int = 1
    num_programs: int = 132
    """The approximate number of programs of one launch: layers x groups of taps x shares of the pixels. They should
    fill the chip once or twice; more programs write more partial sums."""

    @property
    def num_warps(self) -> int:
        return self.groups * self.warps_out * self.warps_in

    def shares(self, num_pixels: int, num_taps: int, num_layers: int) -> "Shares":
        num_blocks = math.ceil(num_pixels / (self.groups * self.pixels))
        num_wanted = max(1, self.num_programs // (num_layers * (num_taps // self.taps)))
        blocks_per_share = math.ceil(num_blocks / num_wanted)
        return Shares(num_blocks, blocks_per_share, math.ceil(num_blocks / blocks_per_share))


class Shares(NamedTuple):
    """How the `num_blocks` blocks of pixels of a layer are divided among programs."""

    num_blocks: int
    blocks_per_share: int
    num_shares: int


CONVOLUTION_TILES: dict[tuple[int, int], ConvolutionTile] = {
    (3, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4),
    (16, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4, taps_ahead=3),
    (32, 32): ConvolutionTile(pixels=256, channels=32, warps_pixels=4, taps_ahead=3),
    (64, 64): ConvolutionTile(pixels=128, channels=32, warps_pixels=4, taps_ahead=3),
}
"""By input and output channels: the fastest tile found on an H200 at batch 128, with images of 32 x 32."""

MANY_PIXELS = 2**15
"""From so many output pixels of a batch on, the following tiles are used where there are any."""

LARGE_CONVOLUTION_TILES: dict[tuple[int, int], ConvolutionTile] = {
    (64, 64): ConvolutionTile(pixels=512, channels=32, warps_pixels=8, taps_ahead=1),
}
"""Faster with images of 64 x 64, at batch 128 and 256: fewer programs load the weight less often."""

GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (3, 16): GradientTile(pixels=32, groups=8, taps=1, num_programs=132),
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_programs=264),
    (32, 32): GradientTile(pixels=16, groups=4, taps=3, warps_in=2, num_programs=264),
    (64, 64): GradientTile(pixels=16, groups=2, taps=3, warps_out=2, warps_in=4, num_programs=132),
}
"""Tiles for the weight's gradient of a single layer."""

BATCHED_GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_programs=528),
    (32, 32): GradientTile(pixels=32, groups=2, taps=3, warps_in=2, num_programs=528),
    (64, 64): GradientTile(pixels=32, groups=1, taps=3, warps_out=2, warps_in=4, num_programs=264),
}
"""Tiles for several layers in one launch, where another tile is faster than for a single layer."""

LARGE_GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (64, 64): GradientTile(pixels=16, groups=4, taps=3, warps_in=2, num_programs=264),
}
"""Tiles for several layers in one launch, for many pixels; found with images of 64 x 64 at batch 256."""

MOST_LAYERS = 16
"""The most layers in one launch. The number is a compile-time constant of the kernel; ResNet-32 has 10, 9 and 9 layers
of the same shape."""

NORM_ELEMENTS = 4096
"""Elements of the maps for one program of a BatchNorm kernel: 32 for each thread of 4 warps."""


def convolution_tile(geometry: Geometry, num_pixels: int) -> ConvolutionTile:
    """The tile for `num_pixels` output pixels."""
    tables = [LARGE_CONVOLUTION_TILES] if num_pixels >= MANY_PIXELS else []
    tile = ChainMap(*tables, CONVOLUTION_TILES).get((geometry.in_channels, geometry.out_channels))
    return tile or ConvolutionTile(pixels=128, channels=min(geometry.out_channels, 32), warps_pixels=4, taps_ahead=3)


def gradient_tile(geometry: Geometry, num_pixels: int, num_layers: int) -> GradientTile:
    """The tile for the weight's gradients of `num_layers` layers with `num_pixels` output pixels each."""
    tables = [LARGE_GRADIENT_TILES] if num_pixels >= MANY_PIXELS else []
    tables = [*tables, BATCHED_GRADIENT_TILES] if num_layers > 1 else []
    tile = ChainMap(*tables, GRADIENT_TILES).get((geometry.in_channels, geometry.out_channels))
    if tile:
        return tile
    warps_out, warps_in = max(1, geometry.out_channels // 32), max(1, geometry.depth // 32)
    return GradientTile(16, 4, min(geometry.num_taps, 3), warps_out, warps_in, num_programs=132)
