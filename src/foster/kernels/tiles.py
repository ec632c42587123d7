"""Shapes of convolutions, and how the kernels cut them into pieces: one table of tile sizes for each kernel."""

from typing import NamedTuple


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

EPILOGUE_TILES: dict[tuple[str, int, int], ConvolutionTile] = {}
"""By the name of the epilogue, input and output channels: where it wants another tile than the convolution alone."""

GRADIENT_TILES: dict[tuple[int, int], GradientTile] = {
    (3, 16): GradientTile(pixels=32, groups=8, taps=1, num_shares=132),
    (16, 16): GradientTile(pixels=32, groups=4, taps=9, num_shares=264),
    (32, 32): GradientTile(pixels=16, groups=4, taps=3, warps_in=2, num_shares=88),
    (64, 64): GradientTile(pixels=16, groups=2, taps=3, warps_out=2, warps_in=4, num_shares=44),
}

NORM_ELEMENTS = 4096
"""Elements of the maps that one program of a normalisation kernel takes: 32 for each thread of 4 warps."""


def convolution_tile(geometry: Geometry, epilogue: str = "none") -> ConvolutionTile:
    channels = (geometry.in_channels, geometry.out_channels)
    tile = EPILOGUE_TILES.get((epilogue, *channels)) or CONVOLUTION_TILES.get(channels)
    return tile or ConvolutionTile(pixels=128, channels=min(geometry.out_channels, 32), warps_pixels=4, taps_ahead=3)


def gradient_tile(geometry: Geometry) -> GradientTile:
    tile = GRADIENT_TILES.get((geometry.in_channels, geometry.out_channels))
    if tile:
        return tile
    warps_out, warps_in = max(1, geometry.out_channels // 32), max(1, geometry.depth // 32)
    return GradientTile(16, 4, min(geometry.num_taps, 3), warps_out, warps_in, num_shares=44)
