"""For which 3x3 convolutions there are kernels, and how these cut them into pieces: one table of tile sizes for each
kernel.

For 3 to 64 channels the library's kernels take five to fifteen times as long as moving the data would. Ours take
bfloat16 maps, channels last, and weights of any floating type, which are not cast first. They sum in float32.
"""

import math
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
    # The kernels count elements in 32 bits.
    return (
        is_known
        and image_channels == in_channels
        and 0 < num_images * height * width * max(out_channels, in_channels) < 2**31
    )


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
    """Taps that are loaded before the first is used; more hide more latency and take more registers."""

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
    num_programs: int = 132
    """About so many programs in one launch, over all layers, groups of taps and shares of the pixels. They should fill
    the chip once or twice; more programs make more partial sums."""

    @property
    def num_warps(self) -> int:
        return self.groups * self.warps_out * self.warps_in

    def shares(self, num_pixels: int, num_taps: int, num_layers: int) -> "Shares":
        num_blocks = math.ceil(num_pixels / (self.groups * self.pixels))
        num_wanted = max(1, self.num_programs // (num_layers * (num_taps // self.taps)))
        blocks_per_share = math.ceil(num_blocks / num_wanted)
        return Shares(num_blocks, blocks_per_share, math.ceil(num_blocks / blocks_per_share))


class Shares(NamedTuple):
    """How the pixels of a layer, in `num_blocks` blocks, are shared among programs."""

    num_blocks: int
    blocks_per_share: int
    num_shares: int


CONVOLUTION_TILES: dict[tuple[int, int], ConvolutionTile] = {
    (3, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4),
    (16, 16): ConvolutionTile(pixels=256, channels=16, warps_pixels=4, taps_ahead=3),
    (32, 32): ConvolutionTile(pixels=256, channels=32, warps_pixels=8, taps_ahead=3),
    (64, 64): ConvolutionTile(pixels=128, channels=32, warps_pixels=4, taps_ahead=3),
}
"""By input and output channels: the fastest of those that were tried, batch 128, on an H200."""

GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (3, 16): GradientTile(pixels=32, groups=8, taps=1, num_programs=132),
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_programs=264),
    (32, 32): GradientTile(pixels=16, groups=4, taps=3, warps_in=2, num_programs=264),
    (64, 64): GradientTile(pixels=16, groups=2, taps=3, warps_out=2, warps_in=4, num_programs=132),
}
"""For the weight's gradient of one layer alone."""

BATCHED_GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_programs=528),
    (32, 32): GradientTile(pixels=32, groups=2, taps=3, warps_in=2, num_programs=528),
    (64, 64): GradientTile(pixels=32, groups=1, taps=3, warps_out=2, warps_in=4, num_programs=264),
}
"""For those of several layers in one launch, where it wants another tile than one layer alone."""

MOST_LAYERS = 16
"""Layers in one launch. Their number is compiled into a kernel; ResNet-32 has 10, 9 and 9 of a kind."""

NORM_ELEMENTS = 4096
"""Elements of the maps that one program of a normalisation kernel takes: 32 for each thread of 4 warps."""


def convolution_tile(geometry: Geometry) -> ConvolutionTile:
    tile = CONVOLUTION_TILES.get((geometry.in_channels, geometry.out_channels))
    return tile or ConvolutionTile(pixels=128, channels=min(geometry.out_channels, 32), warps_pixels=4, taps_ahead=3)


def gradient_tile(geometry: Geometry, num_layers: int = 1) -> GradientTile:
    channels = (geometry.in_channels, geometry.out_channels)
    tile = (BATCHED_GRADIENT_TILES.get(channels) if num_layers > 1 else None) or GRADIENT_TILES.get(channels)
    if tile:
        return tile
    warps_out, warps_in = max(1, geometry.out_channels // 32), max(1, geometry.depth // 32)
    return GradientTile(16, 4, min(geometry.num_taps, 3), warps_out, warps_in, num_programs=132)
