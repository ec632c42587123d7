# mypy: ignore-errors
# ruff: noqa: SIM108  (a kernel's compile-time branches do not return different types)
"""Addressing of 3x3 windows, for convolutions of stride 1 and 2 and for their gradients.

`shape` is the Geometry of kernels/tiles.py: the sizes of input and output, and their ratio (`down`, `up`). All tensors
are NHWC. A pixel is an index into the flattened [images, height, width]. A tap is one of the nine positions of a
window, given by its shifts down and across, -1 to 1. `depth` is the length of one contraction: the input channels of
one tap. With 3 input channels, all nine taps form one contraction of 27, padded to 32.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from foster.kernels.device.layouts import exponent


@gluon.jit
def relu(x):
    """max(x, 0) that keeps NaN, so that a diverged training shows in its loss."""
    return gl.where(x < 0.0, 0.0, x)


@gluon.jit
def quotient(index, size: gl.constexpr):
    """index // size for index >= 0.

    For powers of two a shift replaces the division. The compiler does not know that the index is positive; from the
    shift it can also infer, for example, that all pixels of a warp are in one row.
    """
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
def place_windows(pixel, shape: gl.constexpr):
    """The row and the column of output pixels, and the input pixel at the centre of their windows."""
    row = remainder(quotient(pixel, shape.out_width), shape.out_height)
    column = remainder(pixel, shape.out_width)
    if shape.down * shape.up == 1:
        middle = pixel
    else:
        image = quotient(pixel, shape.out_height * shape.out_width)
        in_row = image * shape.in_height + quotient(row * shape.down, shape.up)
        middle = in_row * shape.in_width + quotient(column * shape.down, shape.up)
    return row, column, middle


@gluon.jit
def is_on_input(index, shift, size: gl.constexpr, down: gl.constexpr, up: gl.constexpr):
    """Whether the input has a row (or column) at `shift` from the centre of the window of output row `index`."""
    if up == 1:
        source = index * down + shift
        result = (source >= 0) & (source < size)
    elif shift == 0:
        # The gradient of a strided convolution: the input has zeros between its rows. Windows of even output rows have
        # an input row at their centre, those of odd output rows at their ends.
        result = (index & 1) == 0
    else:
        result = ((index & 1) == 1) & ((index >> 1) + (shift + 1) // 2 < size)
    return result


@gluon.jit
def load_tap(pointers, k, row, column, is_pixel, down_shift, across_shift, shape: gl.constexpr):
    """The input under one tap of the windows of output pixels (row, column); zero outside of the input.

    `pointers` point to contraction index `k` at the centre of each window; with 3 input channels, to the first channel
    there. All arguments but the shifts broadcast to the shape of the result.
    """
    if shape.in_channels == 3:
        down_shift = k // 9 - 1
        across_shift = k // 3 % 3 - 1
    is_row = is_on_input(row, down_shift, shape.in_height, shape.down, shape.up)
    is_inside = is_row & is_on_input(column, across_shift, shape.in_width, shape.down, shape.up)
    if shape.in_channels == 3:
        offset = (down_shift * shape.in_width + across_shift) * 3 + k % 3
        is_inside = is_inside & (k < 27)
    elif shape.up == 1:
        offset = (down_shift * shape.in_width + across_shift) * shape.in_channels
    else:
        # With zeros between the input's rows, shift +1 is the next input row and shift -1 is the centre's.
        offset = ((down_shift + 1) // 2 * shape.in_width + (across_shift + 1) // 2) * shape.in_channels
    return gl.load(pointers + offset, mask=is_inside & is_pixel, other=0.0)


@gluon.jit
def load_middle(maps, pixel, channel, num_pixels, shape: gl.constexpr):
    """The values of `maps` at the centres of the windows of output pixels, [pixels, channels]. Zero between the pixels
    of the maps, and for channels that they do not have."""
    row, column, middle = place_windows(pixel, shape)
    is_there = pixel < num_pixels
    if shape.up != 1:
        is_there = is_there & is_on_input(row, 0, shape.in_height, shape.down, shape.up)
        is_there = is_there & is_on_input(column, 0, shape.in_width, shape.down, shape.up)
    mask = is_there[:, None] & (channel < shape.in_channels)[None, :]
    return gl.load(maps + (middle * shape.in_channels)[:, None] + channel[None, :], mask=mask, other=0.0)
