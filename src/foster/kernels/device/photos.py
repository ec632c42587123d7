# mypy: ignore-errors
"""Crops of photos of different sizes, resized to one size with an antialiasing filter: one launch for a whole batch."""

import triton
import triton.language as tl


@triton.jit
def crop_and_resize(addresses, boxes, output, size, out_height, out_width, block: tl.constexpr):
    """One program computes `block` pixels of one image, in all three channels.

    `addresses` [n] int64: the address of each photo's pixels, uint8 [height, width, 3]. `boxes` [n, 6] int32: the
    photo's width; top, left, height and width of its box; whether the result is mirrored. `output` uint8 [n, 3,
    out_height, out_width] has `size` pixels an image.

    The filter is Pillow's for the bilinear resizing of a crop: a triangle whose width is the scale factor, cut off at
    the box. Both directions are summed at once in float32. Pillow rounds after the first direction, so values may
    differ by one.
    """
    image = tl.program_id(0).to(tl.int64)
    pixels = tl.program_id(1) * block + tl.arange(0, block)
    is_inside = pixels < size
    photo = tl.load(addresses + image).to(tl.pointer_type(tl.uint8))
    photo_width = tl.load(boxes + image * 6)
    top = tl.load(boxes + image * 6 + 1)
    left = tl.load(boxes + image * 6 + 2)
    height = tl.load(boxes + image * 6 + 3)
    width = tl.load(boxes + image * 6 + 4)
    is_mirrored = tl.load(boxes + image * 6 + 5)
    row = pixels // out_width
    column = pixels % out_width
    column = tl.where(is_mirrored != 0, out_width - 1 - column, column)

    shrink_y = height.to(tl.float32) / out_height
    shrink_x = width.to(tl.float32) / out_width
    reach_y = tl.maximum(shrink_y, 1.0)
    reach_x = tl.maximum(shrink_x, 1.0)
    centre_y = (row.to(tl.float32) + 0.5) * shrink_y
    centre_x = (column.to(tl.float32) + 0.5) * shrink_x
    first_y = tl.maximum((centre_y - reach_y + 0.5).to(tl.int32), 0)
    first_x = tl.maximum((centre_x - reach_x + 0.5).to(tl.int32), 0)
    last_y = tl.minimum((centre_y + reach_y + 0.5).to(tl.int32), height)
    last_x = tl.minimum((centre_x + reach_x + 0.5).to(tl.int32), width)

    red = tl.zeros([block], tl.float32)
    green = tl.zeros([block], tl.float32)
    blue = tl.zeros([block], tl.float32)
    total = tl.zeros([block], tl.float32)
    # The largest number of pixels under a triangle, counted from the first one.
    num_y = tl.ceil(2.0 * reach_y).to(tl.int32)
    num_x = tl.ceil(2.0 * reach_x).to(tl.int32)
    for offset_y in range(num_y):
        y = first_y + offset_y
        weight_y = tl.maximum(1.0 - tl.abs(y.to(tl.float32) + 0.5 - centre_y) / reach_y, 0.0)
        weight_y = tl.where(y < last_y, weight_y, 0.0)
        line = photo + ((top + y).to(tl.int64) * photo_width + left) * 3
        for offset_x in range(num_x):
            x = first_x + offset_x
            weight = tl.maximum(1.0 - tl.abs(x.to(tl.float32) + 0.5 - centre_x) / reach_x, 0.0) * weight_y
            is_read = is_inside & (x < last_x) & (weight > 0.0)
            weight = tl.where(is_read, weight, 0.0)
            pointer = line + x * 3
            red += weight * tl.load(pointer, mask=is_read, other=0).to(tl.float32)
            green += weight * tl.load(pointer + 1, mask=is_read, other=0).to(tl.float32)
            blue += weight * tl.load(pointer + 2, mask=is_read, other=0).to(tl.float32)
            total += weight
    scale = 1.0 / tl.maximum(total, 1e-20)
    result = output + image * 3 * size + pixels
    tl.store(result, (red * scale + 0.5).to(tl.uint8), mask=is_inside)
    tl.store(result + size, (green * scale + 0.5).to(tl.uint8), mask=is_inside)
    tl.store(result + 2 * size, (blue * scale + 0.5).to(tl.uint8), mask=is_inside)
