"""Crops of batches of images `[n, 3, H, W]` uint8, and the coefficients of translations and rotations for the kernel.

Every image has its own parameters. They are integers, prepared on the CPU with NumPy, so results do not depend on the
device.
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
