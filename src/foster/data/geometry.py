"""Moving the pixels of whole batches of images: crops, translations, rotations and shears, as Pillow computes them.

Images are `[n, 3, H, W]` uint8, and every image has its own parameters. Positions and weights are integers, or float64
as in Pillow, so the results equal Pillow's and do not depend on the device.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

FILL = 128  # grey: what AutoAugment puts where a moved image leaves a gap
FIXED_POINT = 16  # bits after the point in Pillow's nearest-neighbour transform
RESIZE_BITS = 22  # bits after the point in Pillow's resampling weights


def crop(images: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The window of each image, of its own size, in the image with a black border of `padding` pixels.

    `offsets` `[n, 2]`: the window's top and left, from 0 to twice the padding.
    """
    height, width = images.shape[2:]
    windows = F.pad(images, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, offsets[:, 0], offsets[:, 1]]


def flip(images: Tensor, is_flipped: Tensor) -> Tensor:
    """Images mirrored left to right where `is_flipped` `[n]` (int64) is 1."""
    num_images = len(images)
    both = torch.cat((images, images.flip(3)))
    return both.index_select(0, is_flipped * num_images + torch.arange(num_images, device=images.device))


def resized_crop(images: Tensor, boxes: Tensor) -> Tensor:
    """Each image's box, enlarged to the size of the image (bilinear); `boxes` `[n, 4]`: top, left, height, width."""
    top, left, height, width = boxes.double().unbind(1)
    return _resize(_resize(images, left, width, dim=3), top, height, dim=2)


def _resize(images: Tensor, start: Tensor, length: Tensor, dim: int) -> Tensor:
    """The pixels from `start` on, `length` of them (both `[n]`), spread over the whole of one dimension."""
    size = images.shape[dim]
    shape = [len(images), 1, 1, 1]
    shape[dim] = size
    start, last = start.unsqueeze(1), (length - 1).unsqueeze(1)
    centres = torch.arange(size, dtype=torch.float64, device=images.device) + 0.5
    positions = centres * (length / size).unsqueeze(1) - 0.5
    lower = positions.floor()
    weight = ((positions - lower) * (1 << RESIZE_BITS) + 0.5).to(torch.int32).view(shape)
    first, second = (
        images.gather(dim, (start + index).long().view(shape).expand_as(images)).to(torch.int32)
        for index in (lower.clamp(min=0), torch.minimum(lower + 1, last))
    )
    total = first * ((1 << RESIZE_BITS) - weight) + second * weight + (1 << (RESIZE_BITS - 1))
    return (total >> RESIZE_BITS).to(torch.uint8)


def transform_nearest(images: Tensor, coefficients: Tensor) -> Tensor:
    """Output pixel (x, y) is input pixel ((a x + b y + c) >> 16, (d x + e y + f) >> 16), grey where that lies outside.

    `coefficients` is `[n, 6]` int32: a to f as fixed-point numbers.
    """
    rows, columns = _axes(images, torch.int32)
    a, b, c, d, e, f = coefficients.view(-1, 6, 1, 1).unbind(1)
    x = (a * columns + (b * rows + c)) >> FIXED_POINT
    y = (d * columns + (e * rows + f)) >> FIXED_POINT
    return _pixels(images, x, y, _is_inside(images, x, y)).view_as(images)


def shear(images: Tensor, slopes: Tensor) -> Tensor:
    """Sheared along x or along y with cubic interpolation; `slopes` `[n, 2]` float64, one of each pair zero."""
    height, width = images.shape[2:]
    rows, columns = (axis + 0.5 for axis in _axes(images, torch.float64))
    slope_x, slope_y = slopes.view(-1, 2, 1, 1, 1).unbind(1)
    x = columns + slope_x * rows
    y = rows + slope_y * columns
    is_inside = _is_inside(images, x, y)
    x, y = x - 0.5, y - 0.5
    left, top = x.floor(), y.floor()
    # The cubic runs along the sheared axis only: on the other one the fraction is exactly zero.
    fraction = (x - left).add_(y - top)
    offsets = torch.arange(-1, 3, dtype=torch.float64, device=images.device).view(-1, 1, 1)
    tap_x = (left + offsets * (slope_x != 0)).clamp_(0, width - 1)
    tap_y = (top + offsets * (slope_y != 0)).clamp_(0, height - 1)
    taps = _pixels(images, tap_x, tap_y, is_inside).view(*images.shape[:2], 4, height, width)
    before, here, after, beyond = taps.to(torch.int16).unbind(2)
    cubic = here - before + beyond - after
    square = 2 * (before - here) + after - beyond
    values = (cubic * fraction).add_(square).mul_(fraction).add_(after - before).mul_(fraction).add_(here)
    return values.clamp_(0, 255).to(torch.uint8)


def _axes(images: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Row numbers `[H, 1]` and column numbers `[W]`."""
    rows, columns = (torch.arange(size, dtype=dtype, device=images.device) for size in images.shape[2:])
    return rows.unsqueeze(1), columns


def _is_inside(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (x >= 0) & (x < images.shape[3]) & (y >= 0) & (y < images.shape[2])


def _pixels(images: Tensor, x: Tensor, y: Tensor, is_inside: Tensor) -> Tensor:
    """The pixels in columns x and rows y, both `[n, ...]`, as `[n, 3, number of positions]`; grey where not inside."""
    _, num_channels, height, width = images.shape
    # One grey pixel after the last stands for everything outside.
    pixels = F.pad(images.flatten(2), (0, 1), value=FILL)
    index = torch.where(is_inside, y * width + x, height * width).long().flatten(1).unsqueeze(1)
    return pixels.gather(2, index.expand(-1, num_channels, -1))


def slope_x(images: Tensor, magnitudes: Tensor) -> Tensor:
    """For `shear`: along x, by `magnitudes` pixels a row."""
    return torch.stack((magnitudes, torch.zeros_like(magnitudes)), dim=1)


def slope_y(images: Tensor, magnitudes: Tensor) -> Tensor:
    """For `shear`: along y, by `magnitudes` pixels a column."""
    return torch.stack((torch.zeros_like(magnitudes), magnitudes), dim=1)


def translation_x(images: Tensor, magnitudes: Tensor) -> Tensor:
    """For `transform_nearest`: to the left, by a share of the width."""
    return _translation(magnitudes * images.shape[3], position=2)


def translation_y(images: Tensor, magnitudes: Tensor) -> Tensor:
    """For `transform_nearest`: upwards, by a share of the height."""
    return _translation(magnitudes * images.shape[2], position=5)


def _translation(distance: Tensor, position: int) -> Tensor:
    """A move by the nearest number of whole pixels."""
    coefficients = distance.new_zeros(len(distance), 6)
    coefficients[:, ::4] = 1  # a and e
    coefficients[:, position] = (distance + 0.5).floor_()
    return coefficients.to(torch.int32) << FIXED_POINT


def rotation(images: Tensor, degrees: Tensor) -> Tensor:
    """For `transform_nearest`: anticlockwise about the image's centre."""
    centre_y, centre_x = images.shape[2] / 2, images.shape[3] / 2
    radians = degrees * (-math.pi / 180)
    cosine, sine = radians.cos(), radians.sin()
    x = centre_x - cosine * centre_x - sine * centre_y
    y = centre_y + sine * centre_x - cosine * centre_y
    # A pixel's centre lies half a pixel right of and below its coordinates.
    coefficients = (cosine, sine, x + (cosine + sine) * 0.5, -sine, cosine, y + (cosine - sine) * 0.5)
    return (torch.stack(coefficients, dim=1) * (1 << FIXED_POINT) + 0.5).floor().to(torch.int32)
