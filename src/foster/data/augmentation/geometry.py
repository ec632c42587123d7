"""Geometric operations on batches of images: crops, translations, rotations and shears, computed as in Pillow.

Images are `[n, 3, H, W]` uint8, and every image has its own parameters. Positions and weights are integers, or float64
as in Pillow, so results do not depend on the device and equal Pillow's (shears except for rounding). Parameters are
prepared on the CPU with NumPy. `transform_nearest` and `shear` work in place.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

FILL = 128  # grey, AutoAugment's fill colour
FIXED_POINT = 16  # bits after the point in Pillow's nearest-neighbour transform
RESIZE_BITS = 22  # bits after the point in Pillow's resampling weights


def windows(offsets: NDArray[Any], is_flipped: NDArray[Any], width: int, padding: int) -> NDArray[np.int64]:
    """The `windows` of `crop`, `[n, 2]`: the index of each window's first pixel, and the direction of its rows (1 or
    -1).

    `offsets` `[n, 2]` are the top and left of the window, from 0 to twice the padding. `is_flipped` `[n]` is 1 if the
    window is mirrored left to right.
    """
    starts = offsets[:, 0] * (width + 2 * padding) + offsets[:, 1] + is_flipped * (width - 1)
    return np.stack((starts, 1 - 2 * is_flipped), axis=1)


def crop(images: Tensor, windows: Tensor, padding: int) -> Tensor:
    """Add a black border of `padding` pixels to each image, and cut out a window of the original size."""
    num_channels, padded_width = images.shape[1], images.shape[3] + 2 * padding
    pixels = F.pad(images, (padding,) * 4).flatten(2)
    rows, columns = _axes(images)
    starts, directions = windows.view(-1, 2, 1, 1).unbind(1)
    index = torch.add(starts, rows, alpha=padded_width) + directions * columns
    return pixels.gather(2, index.flatten(1).unsqueeze(1).expand(-1, num_channels, -1)).view_as(images)


def resized_crop(images: Tensor, boxes: Tensor) -> Tensor:
    """Cut out the box of each image and enlarge it to the size of the image (bilinear). `boxes` `[n, 4]`: top, left,
    height, width."""
    top, left, height, width = boxes.double().unbind(1)
    return _resize(_resize(images, left, width, dim=3), top, height, dim=2)


def _resize(images: Tensor, start: Tensor, length: Tensor, dim: int) -> Tensor:
    """Resize the pixels `start` to `start + length` (both `[n]`) of one dimension to its whole size."""
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
    total = second.sub_(first).mul_(weight).add_(first, alpha=1 << RESIZE_BITS).add_(1 << (RESIZE_BITS - 1))
    return (total >> RESIZE_BITS).to(torch.uint8)


def transform_nearest(images: Tensor, counts: Sequence[int], coefficients: Tensor) -> None:
    """Output pixel (x, y) becomes input pixel (a x + b y + c, d x + e y + f), or grey outside of the image.

    `coefficients` `[n, 6]` int64 are a to f as fixed-point numbers; c and f include the border of one pixel.
    """
    _, num_channels, height, width = images.shape
    rows, columns = _axes(images)
    by_column, by_row, offset = coefficients.view(-1, 2, 3, 1, 1).unbind(2)
    x, y = (((by_row * rows + offset) + by_column * columns) >> FIXED_POINT).unbind(1)
    # A grey border of one pixel represents everything outside.
    pixels = F.pad(images, (1,) * 4, value=FILL).flatten(2)
    index = torch.add(x.clamp_(0, width + 1), y.clamp_(0, height + 1), alpha=width + 2)
    torch.gather(pixels, 2, index.flatten(1).unsqueeze(1).expand(-1, num_channels, -1), out=images.flatten(2))


def translation_x(magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """The coefficients of a translation to the left, by a share of the width, in whole pixels."""
    return _fixed_point(len(magnitudes), 1, 0, np.floor(magnitudes * width + 0.5), 0, 1, 0)


def translation_y(magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """The coefficients of a translation upwards, by a share of the height, in whole pixels."""
    return _fixed_point(len(magnitudes), 1, 0, 0, 0, 1, np.floor(magnitudes * height + 0.5))


def rotation(degrees: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """The coefficients of an anticlockwise rotation about the image's centre."""
    centre_y, centre_x = height / 2, width / 2
    radians = degrees * (-math.pi / 180)
    cosine, sine = np.cos(radians), np.sin(radians)
    x = centre_x - cosine * centre_x - sine * centre_y
    y = centre_y + sine * centre_x - cosine * centre_y
    # The centre of a pixel is half a pixel to the right of and below its coordinates.
    x, y = x + (cosine + sine) * 0.5, y + (cosine - sine) * 0.5
    return _fixed_point(len(degrees), cosine, sine, x, -sine, cosine, y)


def _fixed_point(num_images: int, *coefficients: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """The coefficients a to f, each one number or one for each image, as rows for `transform_nearest`."""
    rows = np.empty((num_images, 6))
    for position, values in enumerate(coefficients):
        rows[:, position] = values
    rows[:, 2::3] += 1  # the border
    return np.floor(rows * (1 << FIXED_POINT) + 0.5).astype(np.int64)


def shear(images: Tensor, counts: Sequence[int], slopes: Tensor) -> None:
    """Shear the first `counts[0]` images along x and the others along y; `slopes` `[n]` float64 in pixels a line."""
    num_x, num_y = counts
    if num_x:
        _shear_x(images[:num_x], slopes[:num_x])
    if num_y:
        _shear_x(images[num_x:].transpose(2, 3), slopes[num_x:])


def _shear_x(images: Tensor, slopes: Tensor) -> None:
    """Shear along x with cubic interpolation, in Pillow's order of float64 operations; `slopes` is `[n]`."""
    num_images, num_channels, height, width = images.shape
    rows, columns = _axes(images, first=0.5)
    x = slopes.view(-1, 1, 1) * rows + columns
    is_outside = (x < 0) | (x >= width)
    x -= 0.5
    left = x.floor()
    fraction = (x - left).unsqueeze(1)
    taps = torch.arange(-1, 3, device=images.device).view(4, 1)
    index = (left.long().unsqueeze(2) + taps).clamp_(0, width - 1).flatten(2)
    pixels = images.gather(3, index.unsqueeze(1).expand(-1, num_channels, -1, -1)).to(torch.int16)
    before, here, after, beyond = pixels.view(num_images, num_channels, height, 4, width).unbind(3)
    drop = before - here
    cubic = (beyond - after) - drop
    square = drop - cubic
    values = (cubic * fraction).add_(square).mul_(fraction).add_(after - before).mul_(fraction).add_(here)
    images.copy_(values.clamp_(0, 255).masked_fill_(is_outside.unsqueeze(1), FILL))


def _axes(images: Tensor, first: float = 0) -> tuple[Tensor, Tensor]:
    """Row numbers `[H, 1]` and column numbers `[W]`, starting from `first`."""
    height, width = images.shape[2:]
    numbers = torch.arange(first, first + max(height, width), device=images.device)
    return numbers[:height].unsqueeze(1), numbers[:width]
