"""Crops of batches of images, computed as in Pillow, and the coefficients of translations and rotations for the kernel.

Images are `[n, 3, H, W]` uint8, and every image has its own parameters. Positions and weights are integers, or float64
as in Pillow, so results do not depend on the device. Parameters are prepared on the CPU with NumPy.
"""

import math
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
    rows = torch.arange(images.shape[2], device=images.device).unsqueeze(1)
    columns = torch.arange(images.shape[3], device=images.device)
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
    """The coefficients a to f, each one number or one for each image, as rows for the kernel: output pixel (x, y) is
    input pixel (a x + b y + c, d x + e y + f) of the image in a border of one pixel."""
    rows = np.empty((num_images, 6))
    for position, values in enumerate(coefficients):
        rows[:, position] = values
    rows[:, 2::3] += 1  # the border
    return np.floor(rows * (1 << FIXED_POINT) + 0.5).astype(np.int64)
