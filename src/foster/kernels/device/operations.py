# mypy: ignore-errors
"""AutoAugment's operations, a different one for each image of a batch. The kernel `measure` computes the
numbers of the whole image that an operation needs, and `change` changes the pixels.

Images are uint8 [n, 3, height, width] with `size` pixels. `choices` [n, 7] int64 has each image's operation, as its
position in the list of operations (-1: none), and its up to six integer parameters; `numbers` [n] float64 has its
fractional parameter. The arithmetic is Pillow's: integers, or single rounded operations, so the compiler must not fuse
multiplications with additions.
"""

import triton
import triton.language as tl

GREY: tl.constexpr = tl.constexpr(128)
COLUMNS: tl.constexpr = tl.constexpr(7)
SHEAR_X: tl.constexpr = tl.constexpr(0)
SHEAR_Y: tl.constexpr = tl.constexpr(1)
ROTATE: tl.constexpr = tl.constexpr(4)
SHARPNESS: tl.constexpr = tl.constexpr(5)
COLOR: tl.constexpr = tl.constexpr(6)
CONTRAST: tl.constexpr = tl.constexpr(7)
BRIGHTNESS: tl.constexpr = tl.constexpr(8)
INVERT: tl.constexpr = tl.constexpr(11)
AUTOCONTRAST: tl.constexpr = tl.constexpr(12)


@triton.jit
def measure(images, choices, tables, means, size, block: tl.constexpr):
    """One program for each image and channel. Writes `tables` uint8 [n, 3, 256], the new value of each value, for
    operations that replace values, and `means` int32 [n], the mean of the grey image, for Contrast."""
    image = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1)
    operation = tl.load(choices + image * COLUMNS)
    if operation > BRIGHTNESS:
        _make_table(
            images + (image * 3 + channel) * size, choices + image * COLUMNS, tables, image, channel, size, block
        )
    elif (operation == CONTRAST) & (channel == 0):
        total = tl.zeros([block], tl.int32)
        for first in range(0, size, block):
            pixels = first + tl.arange(0, block)
            total += _luma(images + image * 3 * size + pixels, size, pixels < size)
        mean = (tl.sum(total.to(tl.int64), 0) + size // 2) // size
        tl.store(means + image, mean.to(tl.int32))


@triton.jit
def _make_table(pixels_of_channel, choice, tables, image, channel, size, block: tl.constexpr):
    operation = tl.load(choice)
    values = tl.arange(0, 256)
    table = tables + (image * 3 + channel) * 256 + values
    if operation <= INVERT:
        threshold = tl.load(choice + 1).to(tl.int32)
        bits = tl.load(choice + 2).to(tl.int32)
        tl.store(table, (tl.where(values < threshold, values, 255 - values) & bits).to(tl.uint8))
    else:
        counts = tl.zeros([256], tl.int32)
        for first in range(0, size, block):
            pixels = first + tl.arange(0, block)
            found = tl.load(pixels_of_channel + pixels, mask=pixels < size, other=0).to(tl.int32)
            counts += tl.histogram(found, 256)
        # Pixels after the end were counted as black.
        counts -= tl.where(values == 0, (size + block - 1) // block * block - size, 0)
        highest = tl.max(tl.where(counts > 0, values, 0), 0)
        if operation == AUTOCONTRAST:
            lowest = tl.min(tl.where(counts > 0, values, 255), 0)
            span = highest - lowest
            scale = 255.0 / tl.maximum(span, 1).to(tl.float64)
            stretched = values.to(tl.float64) * scale - lowest.to(tl.float64) * scale
            stretched = tl.minimum(tl.maximum(stretched, 0.0), 255.0).to(tl.int32)
            tl.store(table, tl.where(span > 0, stretched, values).to(tl.uint8))
        else:
            below = tl.cumsum(counts, 0) - counts
            spacing = tl.sum(tl.where(values == highest, below, 0), 0) // 255
            spread = tl.minimum((below + spacing // 2) // tl.maximum(spacing, 1), 255)
            tl.store(table, tl.where(spacing > 0, spread, values).to(tl.uint8))


@triton.jit
def change(images, choices, numbers, tables, means, output, size, height, width, block: tl.constexpr):
    """One program writes `block` pixels of one image to `output`, in all three channels."""
    image = tl.program_id(0).to(tl.int64)
    pixels = tl.program_id(1) * block + tl.arange(0, block)
    is_inside = pixels < size
    choice = choices + image * COLUMNS
    operation = tl.load(choice)
    source = images + image * 3 * size
    target = output + image * 3 * size + pixels
    if operation < 0:
        for channel in range(3):
            tl.store(target + channel * size, tl.load(source + channel * size + pixels, mask=is_inside), mask=is_inside)
    elif operation <= SHEAR_Y:
        slope = tl.load(numbers + image)
        _shear(source, target, pixels, is_inside, slope, operation == SHEAR_X, size, height, width)
    elif operation <= ROTATE:
        _move(source, target, pixels, is_inside, choice, size, height, width)
    elif operation == SHARPNESS:
        factor = tl.load(numbers + image).to(tl.float32)
        _sharpen(source, target, pixels, is_inside, factor, size, height, width)
    elif operation <= BRIGHTNESS:
        factor = tl.load(numbers + image).to(tl.float32)
        # Contrast blends with the mean, Color with grey, Brightness with black.
        flat = tl.where(operation == CONTRAST, tl.load(means + image, mask=operation == CONTRAST, other=0), 0)
        fades_to = tl.where(operation == COLOR, _luma(source + pixels, size, is_inside), flat).to(tl.float32)
        for channel in range(3):
            value = tl.load(source + channel * size + pixels, mask=is_inside, other=0).to(tl.float32)
            tl.store(target + channel * size, _blended(value, fades_to, factor), mask=is_inside)
    else:
        for channel in range(3):
            value = tl.load(source + channel * size + pixels, mask=is_inside, other=0).to(tl.int32)
            replaced = tl.load(tables + (image * 3 + channel) * 256 + value, mask=is_inside, other=0)
            tl.store(target + channel * size, replaced, mask=is_inside)


@triton.jit
def _luma(red, size, is_inside):
    """The grey values of pixels, in Pillow's fixed point; `red` points to their first channel."""
    total = tl.load(red, mask=is_inside, other=0).to(tl.int32) * 19595
    total += tl.load(red + size, mask=is_inside, other=0).to(tl.int32) * 38470
    total += tl.load(red + 2 * size, mask=is_inside, other=0).to(tl.int32) * 7471
    return (total + 32768) >> 16


@triton.jit
def _blended(value, degenerate, factor):
    """Blend: factor 0 gives the degenerate value, 1 the value, more than 1 extrapolates. Fractions are truncated."""
    mixed = (value - degenerate) * factor + degenerate
    return tl.minimum(tl.maximum(mixed, 0.0), 255.0).to(tl.int32).to(tl.uint8)


@triton.jit
def _sharpen(source, target, pixels, is_inside, factor, size, height, width):
    """Blend with the smoothed image, in which the outermost pixels are unchanged."""
    row = pixels // width
    column = pixels % width
    is_inner = is_inside & (row > 0) & (row < height - 1) & (column > 0) & (column < width - 1)
    for channel in range(3):
        centre = source + channel * size + pixels
        value = tl.load(centre, mask=is_inside, other=0).to(tl.int32)
        total = 4 * value
        for down in range(-1, 2):
            for right in range(-1, 2):
                total += tl.load(centre + down * width + right, mask=is_inner, other=0).to(tl.int32)
        smooth = tl.where(is_inner, (2 * total + 13) // 26, value)
        blended = _blended(value.to(tl.float32), smooth.to(tl.float32), factor)
        tl.store(target + channel * size, blended, mask=is_inside)


@triton.jit
def _move(source, target, pixels, is_inside, choice, size, height, width):
    """Output pixel (x, y) is input pixel (a x + b y + c, d x + e y + f), or grey outside of the image. The coefficients
    are fixed-point numbers; c and f include a border of one pixel."""
    row = pixels // width
    column = pixels % width
    a = tl.load(choice + 1).to(tl.int32)
    b = tl.load(choice + 2).to(tl.int32)
    c = tl.load(choice + 3).to(tl.int32)
    d = tl.load(choice + 4).to(tl.int32)
    e = tl.load(choice + 5).to(tl.int32)
    f = tl.load(choice + 6).to(tl.int32)
    x = ((a * column + b * row + c) >> 16) - 1
    y = ((d * column + e * row + f) >> 16) - 1
    is_there = is_inside & (x >= 0) & (x < width) & (y >= 0) & (y < height)
    for channel in range(3):
        value = tl.load(source + channel * size + y * width + x, mask=is_there, other=GREY)
        tl.store(target + channel * size, value, mask=is_inside)


@triton.jit
def _shear(source, target, pixels, is_inside, slope, is_along_x, size, height, width):
    """Cubic interpolation along the rows or the columns; grey outside of the image."""
    row = pixels // width
    column = pixels % width
    along = tl.where(is_along_x, column, row)
    across = tl.where(is_along_x, row, column)
    length = tl.where(is_along_x, width, height)
    stride = tl.where(is_along_x, 1, width)
    position = slope * (across.to(tl.float64) + 0.5) + (along.to(tl.float64) + 0.5)
    is_outside = (position < 0) | (position >= length)
    position -= 0.5
    left = tl.floor(position)
    fraction = position - left
    first = left.to(tl.int32)
    line = source + across * tl.where(is_along_x, width, 1)
    pointers = line + tl.minimum(tl.maximum(first - 1, 0), length - 1) * stride
    pointers_here = line + tl.minimum(tl.maximum(first, 0), length - 1) * stride
    pointers_after = line + tl.minimum(tl.maximum(first + 1, 0), length - 1) * stride
    pointers_beyond = line + tl.minimum(tl.maximum(first + 2, 0), length - 1) * stride
    for channel in range(3):
        before = tl.load(pointers + channel * size, mask=is_inside, other=0).to(tl.int32)
        here = tl.load(pointers_here + channel * size, mask=is_inside, other=0).to(tl.int32)
        after = tl.load(pointers_after + channel * size, mask=is_inside, other=0).to(tl.int32)
        beyond = tl.load(pointers_beyond + channel * size, mask=is_inside, other=0).to(tl.int32)
        drop = before - here
        cubic = (beyond - after) - drop
        square = drop - cubic
        value = cubic.to(tl.float64) * fraction + square.to(tl.float64)
        value = value * fraction + (after - before).to(tl.float64)
        value = value * fraction + here.to(tl.float64)
        value = tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)
        tl.store(target + channel * size, tl.where(is_outside, GREY, value).to(tl.uint8), mask=is_inside)
