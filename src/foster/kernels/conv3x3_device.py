# mypy: ignore-errors
"""The 3x3 convolution kernels, in Gluon (Triton's language with explicit layouts). Imported only where Triton is.

All tensors are NHWC. A pixel is an index into the flattened [images, height, width]; a tap is one of the nine weight
positions; `depth` is the length of the contraction of one tap. Images of 3 channels are so thin that all nine taps
form one contraction of 27, filled up to 32; otherwise a tap's contraction is its input channels.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from foster.kernels.conv3x3_layouts import (
    image_layout,
    output_layout,
    partial_layout,
    pixels_layout,
    reduction_layout,
    weight_layout,
    weight_load_layout,
    weight_shared_layout,
)


@gluon.jit
def named_image(x, pixels: gl.constexpr, depth: gl.constexpr):
    """[pixels, depth] -> operand B [depth, pixels]."""
    steps: gl.constexpr = 1 if depth == 16 else 2
    x = x.reshape([pixels, depth // (16 * steps), 4, steps, 2, 2])
    return x.permute([1, 3, 4, 2, 5, 0]).reshape([depth, pixels])


@gluon.jit
def named_weight(w, channels: gl.constexpr, depth: gl.constexpr, warps: gl.constexpr):
    """[channels, depth] -> operand A [channels, depth]."""
    steps: gl.constexpr = 1 if depth == 16 else 2
    w = w.reshape([warps, 8, channels // (16 * warps), 2, depth // (16 * steps), 4, steps, 2, 2])
    return w.permute([2, 0, 3, 1, 4, 6, 7, 5, 8]).reshape([channels, depth])


@gluon.jit
def unnamed_output(y, pixels: gl.constexpr, channels: gl.constexpr, warps: gl.constexpr):
    """Product [channels, pixels] -> [pixels, channels]."""
    y = y.reshape([channels // (16 * warps), warps, 2, 8, pixels])
    return y.permute([4, 1, 3, 0, 2]).reshape([pixels, channels])


@gluon.jit
def named_gradient(y, groups: gl.constexpr, pixels: gl.constexpr, channels: gl.constexpr, warps: gl.constexpr):
    """[groups, pixels, channels] -> operand A [groups, channels, pixels]."""
    y = y.reshape([groups, pixels // 16, 2, 2, 4, warps, 8, channels // (16 * warps), 2])
    return y.permute([0, 7, 5, 8, 6, 1, 2, 4, 3]).reshape([groups, channels, pixels])


@gluon.jit
def named_pixels(x, groups: gl.constexpr, pixels: gl.constexpr, depth: gl.constexpr, warps: gl.constexpr):
    """[groups, pixels, depth] -> operand B [groups, pixels, depth]."""
    x = x.reshape([groups, pixels // 16, 2, 2, 4, warps, 8, depth // (8 * warps)])
    return x.permute([0, 1, 2, 4, 3, 7, 5, 6]).reshape([groups, pixels, depth])


@gluon.jit
def unnamed_sums(
    sums, groups: gl.constexpr, channels: gl.constexpr, depth: gl.constexpr, warps_out: gl.constexpr,
    warps_in: gl.constexpr,
):
    """Product [groups, channels, depth] -> the same in the order of memory."""
    sums = sums.reshape([groups, channels // (16 * warps_out), warps_out, 2, 8, depth // (8 * warps_in), warps_in, 8])
    return sums.permute([0, 2, 4, 1, 3, 6, 7, 5]).reshape([groups, channels, depth])


@gluon.jit
def is_on_input(index, shift: gl.constexpr, size: gl.constexpr, down: gl.constexpr, up: gl.constexpr):
    """Whether the input has a row (or column) at `shift` from the middle of the window of output row `index`."""
    if up == 1:
        source = index * down + shift
        inside = (source >= 0) & (source < size)
    elif shift == 0:
        # The input's rows lie apart, with zeros between: even output rows meet them in the middle of the window, odd
        # ones at its ends.
        inside = index % 2 == 0
    else:
        inside = (index % 2 == 1) & (index // 2 + (shift + 1) // 2 < size)
    return inside


@gluon.jit
def load_tap(
    images, middle, row, column, is_pixel, tap: gl.constexpr, in_channels: gl.constexpr, in_height: gl.constexpr,
    in_width: gl.constexpr, down: gl.constexpr, up: gl.constexpr,
):
    """The input under one tap of the windows of the pixels at (row, column), zero outside of the input.

    `images` are pointers to the channels of the pixel under the middle of each window. `middle` holds the indices of
    the contraction, which only 3-channel images need.
    """
    if in_channels == 3:
        down_shift = middle // 9 - 1
        across_shift = middle // 3 % 3 - 1
        source_row = row * down + down_shift
        source_column = column * down + across_shift
        mask = (source_row >= 0) & (source_row < in_height) & (source_column >= 0) & (source_column < in_width)
        offset = (down_shift * in_width + across_shift) * 3 + middle % 3
        values = gl.load(images + offset, mask=mask & (middle < 27) & is_pixel, other=0.0)
    else:
        # Apart from zeros between, the row after the middle one is one row on, and the one before is the middle one.
        down_shift: gl.constexpr = tap // 3 - 1
        across_shift: gl.constexpr = tap % 3 - 1
        mask = is_on_input(row, down_shift, in_height, down, up) & is_on_input(column, across_shift, in_width, down, up)
        rows: gl.constexpr = down_shift if up == 1 else (down_shift + 1) // 2
        columns: gl.constexpr = across_shift if up == 1 else (across_shift + 1) // 2
        values = gl.load(images + (rows * in_width + columns) * in_channels, mask=mask & is_pixel, other=0.0)
    return values
