# mypy: ignore-errors
# ruff: noqa: SIM108  (a kernel's compile-time branches do not return different types)
"""Where a 3x3 window lies on its input, for convolutions of stride 1 and 2 and their gradients.

All tensors are NHWC. A pixel is an index into the flattened [images, height, width]; a tap is one of the nine places of
a window, given by its shifts down and across, -1 to 1. `depth` is the length of the contraction of one tap: its input
channels. Images of 3 channels are so thin that all nine taps form one contraction of 27, filled up to 32.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from foster.kernels.device.layouts import exponent


@gluon.jit
def quotient(index, size: gl.constexpr):
    """index // size for index >= 0. The compiler cannot know the sign and would divide with care; through a shift it
    sees that, for example, all pixels of a warp are in one row."""
    if size & (size - 1) == 0:
        result = index >> exponent(size)
    else:
        result = index // size
    return result


@gluon.jit
def remainder(index, size: gl.constexpr):
    """index % size for index >= 0."""
    if size & (size - 1) == 0:
        result = index & (size - 1)
    else:
        result = index % size
    return result


@gluon.jit
def place_windows(pixel, in_height: gl.constexpr, in_width: gl.constexpr, out_height: gl.constexpr,
                  out_width: gl.constexpr, down: gl.constexpr, up: gl.constexpr):  # fmt: skip
    """Row and column of output pixels, and the input pixel under the middle of their windows."""
    row = remainder(quotient(pixel, out_width), out_height)
    column = remainder(pixel, out_width)
    if down * up == 1:
        middle = pixel
    else:
        image = quotient(pixel, out_height * out_width)
        middle = (image * in_height + quotient(row * down, up)) * in_width + quotient(column * down, up)
    return row, column, middle


@gluon.jit
def is_on_input(index, shift, size: gl.constexpr, down: gl.constexpr, up: gl.constexpr):
    """Whether the input has a row (or column) at `shift` from the middle of the window of output row `index`."""
    if up == 1:
        source = index * down + shift
        result = (source >= 0) & (source < size)
    elif shift == 0:
        # The input's rows lie apart, with zeros between: even output rows meet them in the middle of the window, odd
        # ones at its ends.
        result = (index & 1) == 0
    else:
        result = ((index & 1) == 1) & ((index >> 1) + (shift + 1) // 2 < size)
    return result


@gluon.jit
def load_tap(pointers, k, row, column, is_pixel, down_shift, across_shift, in_channels: gl.constexpr,
             in_height: gl.constexpr, in_width: gl.constexpr, down: gl.constexpr, up: gl.constexpr):  # fmt: skip
    """The input under one tap of the windows of the pixels at (row, column), zero outside of the input.

    `pointers` lead to index `k` of the contraction under the middle of each window or, where all taps form one
    contraction, to the first channel there. All but the shifts broadcast to the shape of the result.
    """
    if in_channels == 3:
        down_shift = k // 9 - 1
        across_shift = k // 3 % 3 - 1
    is_inside = is_on_input(row, down_shift, in_height, down, up) & is_on_input(
        column, across_shift, in_width, down, up
    )
    if in_channels == 3:
        offset = (down_shift * in_width + across_shift) * 3 + k % 3
        is_inside = is_inside & (k < 27)
    elif up == 1:
        offset = (down_shift * in_width + across_shift) * in_channels
    else:
        # With zeros between the input's rows, the row after the middle is one row on, the one before is the middle.
        offset = ((down_shift + 1) // 2 * in_width + (across_shift + 1) // 2) * in_channels
    return gl.load(pointers + offset, mask=is_inside & is_pixel, other=0.0)


@gluon.jit
def load_middle(maps, pixel, channel, num_pixels, channels: gl.constexpr, in_height: gl.constexpr,
                in_width: gl.constexpr, out_height: gl.constexpr, out_width: gl.constexpr, down: gl.constexpr,
                up: gl.constexpr):  # fmt: skip
    """What `maps`, of `channels` channels, have under the middle of the windows of output pixels: [pixels, channels].
    Zero where that lies between their pixels, and for channels that they do not have."""
    row, column, middle = place_windows(pixel, in_height, in_width, out_height, out_width, down, up)
    is_there = pixel < num_pixels
    if up != 1:
        is_there = is_there & is_on_input(row, 0, in_height, down, up) & is_on_input(column, 0, in_width, down, up)
    mask = is_there[:, None] & (channel < channels)[None, :]
    return gl.load(maps + (middle * channels)[:, None] + channel[None, :], mask=mask, other=0.0)
