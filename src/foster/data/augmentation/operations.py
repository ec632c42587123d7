"""AutoAugment's 14 operations on batches of images, computed as in Pillow.

Operations form families; a family is applied in one pass over the pixels, whatever its operations are. Arithmetic is in
integers, or in Pillow's float type with one operator at a time (a fused multiply-add rounds differently), so results do
not depend on the device. They equal Pillow's on x86. On ARM, Pillow is compiled with fused multiply-adds: up to 0.23 %
of the values of shears, Sharpness, Color and Contrast differ.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.augmentation.geometry import rotation, shear, transform_nearest, translation_x, translation_y
from foster.kernels.operations import COLUMNS, operate

LUMA_WEIGHTS = tuple(weight / (1 << 16) for weight in (19595, 38470, 7471))  # ITU-R 601-2 in Pillow's fixed point
WORD = 8  # bytes of the largest element type
SENT_TYPES = {np.dtype(np.int64): torch.int64, np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}

# (magnitudes `[n]`, height, width) -> a row of parameters for each image.
Prepare = Callable[[NDArray[np.float64], int, int], NDArray[Any]]
# (images, counts, parameters): images `[n, 3, H, W]` uint8, contiguous and sorted by operation, are changed in place;
# counts are the numbers of images of each operation of the family; parameters have a row for each image.
Change = Callable[[Tensor, Sequence[int], Tensor], None]


class Operation(NamedTuple):
    """An operation. Operations with the same `change` are a family."""

    change: Change
    prepare: Prepare


class Family(NamedTuple):
    """Operations that are applied in one pass; they are consecutive in OPERATIONS."""

    change: Change
    operations: tuple[Operation, ...]


class Work(NamedTuple):
    """A deferred change of some images: `change(images, *send(arrays, device))`."""

    arrays: Sequence[NDArray[Any]]
    change: Callable[..., Tensor]


def send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Small arrays of SENT_TYPES as tensors on `device`, in one asynchronous transfer."""
    sizes = [-(-array.nbytes // WORD) for array in arrays]
    parcel = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=device.type == "cuda")
    rest = parcel.numpy()
    for array, size in zip(arrays, sizes, strict=True):
        rest[:size].view(array.dtype)[: array.size] = array.ravel()
        rest = rest[size:]
    parts = parcel.to(device, non_blocking=True).split_with_sizes(sizes)
    return [
        part.view(SENT_TYPES[array.dtype])[: array.size].view(array.shape)
        for array, part in zip(arrays, parts, strict=True)
    ]


def by_kernel(operations: NDArray[Any], magnitudes: NDArray[np.float64], height: int, width: int) -> Work:
    """The work that applies one operation to each image in one pass on the GPU. `operations` `[n]` are positions in
    OPERATIONS, or -1 for none.

    The pixels are exactly those without kernels.
    """
    choices = np.zeros((len(operations), COLUMNS), np.int64)
    numbers = np.zeros(len(operations))
    choices[:, 0] = operations
    for position in np.unique(operations[operations >= 0]).tolist():
        where = np.flatnonzero(operations == position)
        parameters = _ALL[position].prepare(magnitudes[where], height, width)
        if parameters.ndim == 1:
            numbers[where] = parameters
        else:
            choices[where, 1 : 1 + parameters.shape[1]] = parameters
    is_measuring = bool(np.isin(operations, MEASURING).any())
    return Work([choices, numbers], partial(operate, is_measuring=is_measuring))


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply every image by its factor `[n]` float32: 0 is black, 1 changes nothing."""
    return images.float().mul_(factor.view(-1, 1, 1, 1)).clamp_(0, 255).to(torch.uint8)


def _enhance(images: Tensor, counts: Sequence[int], factor: Tensor) -> None:
    """Pillow's `Image.blend` of a degenerate image (factor 0) and the image (factor 1); larger factors extrapolate.

    The degenerate image is the smoothed image for Sharpness, the grey image for Color, the mean for Contrast, and black
    for Brightness.
    """
    num_sharpness, num_colour, num_contrast, num_brightness = counts
    originals = images.float()
    sharpness, coloured, brightness = originals.split_with_sizes(
        (num_sharpness, num_colour + num_contrast, num_brightness)
    )
    smooth, grey, black = _smooth(sharpness), _luma(coloured), originals.new_zeros(()).expand_as(brightness)
    grey, to_flatten = grey.expand_as(coloured).split_with_sizes((num_colour, num_contrast))
    flat = _rounded_mean(to_flatten[:, :1]).expand_as(to_flatten)
    degenerate = torch.cat((smooth, grey, flat, black))
    # Values are truncated, not rounded.
    images.copy_(originals.sub_(degenerate).mul_(factor.view(-1, 1, 1, 1)).add_(degenerate).clamp_(0, 255))


def _luma(images: Tensor) -> Tensor:
    """The grey image `[n, 1, H, W]` float32 of images in float32, as Pillow converts RGB to L.

    Every sum is an integer below 2 ** 24 over 2 ** 16, which float32 holds exactly.
    """
    red, green, blue = images.split(1, dim=1)
    total: Tensor = (red * LUMA_WEIGHTS[0]).add_(green, alpha=LUMA_WEIGHTS[1]).add_(blue, alpha=LUMA_WEIGHTS[2])
    return total.add_(0.5).floor_()


def _rounded_mean(grey: Tensor) -> Tensor:
    """The mean `[n, 1, 1, 1]` of grey images, rounded half up: in integers, so that all devices agree."""
    num_pixels = grey.shape[2] * grey.shape[3]
    totals = grey.sum((2, 3), keepdim=True, dtype=torch.int64)
    return totals.add_(num_pixels // 2).floor_divide_(num_pixels).float()


def _smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH filter, which does not change the outermost pixels."""
    sums = (images[:, :, :-2] + images[:, :, 1:-1]).add_(images[:, :, 2:])
    sums = (sums[..., :-2] + sums[..., 1:-1]).add_(sums[..., 2:])
    result = images.clone()
    centre = result[:, :, 1:-1, 1:-1]
    # An integer divided by 13 is never halfway between two integers, so rounding errors of the quotient do not matter.
    centre.copy_(sums.add_(centre, alpha=4).div_(13).round_())
    return result


def _look_up(images: Tensor, counts: Sequence[int], parameters: Tensor) -> None:
    """Replace each value by its entry in the table `[256]` of its image and channel.

    `parameters` `[n, 2]` int64: the threshold of Solarize, and the bit mask of Posterize.
    """
    num_posterize, num_solarize, num_invert, num_autocontrast, num_equalize = counts
    num_known = num_posterize + num_solarize + num_invert
    pixels = images.flatten(2).long()
    values = torch.arange(256, device=images.device)
    tables = torch.empty((*pixels.shape[:2], 256), dtype=torch.uint8, device=images.device)
    threshold, bits = parameters[:num_known].view(-1, 2, 1, 1).unbind(1)
    tables[:num_known] = torch.where(values < threshold, values, 255 - values) & bits
    _, stretched, spread = pixels.split_with_sizes((num_known, num_autocontrast, num_equalize))
    stretched_tables, span = _autocontrast_tables(stretched, values)
    spread_tables, spacing = _equalize_tables(spread, values)
    measured = torch.cat((stretched_tables, spread_tables)).clamp_(0, 255)
    # A channel with too few different values does not change.
    tables[num_known:] = torch.where(torch.cat((span, spacing)) > 0, measured, values)
    torch.gather(tables, 2, pixels, out=images.flatten(2))


def _autocontrast_tables(pixels: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The tables, float64, that map the lowest value of a channel to 0 and the highest to 255, and their difference."""
    lowest = pixels.amin(2, keepdim=True)
    span = (pixels.amax(2, keepdim=True) - lowest).double()
    scale = values[255:] / span  # `255 / span` would multiply by a rounded reciprocal
    return (values * scale).sub_(lowest * scale), span


def _equalize_tables(pixels: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The tables of histogram equalisation, and the number of pixels of each step."""
    counts = _histograms(pixels, values)
    num_below = counts.cumsum(2).sub_(counts)
    spacing = num_below.gather(2, pixels.amax(2, keepdim=True)) // 255
    # Below 2 ** 24, a float32 quotient is below an integer if the exact quotient is.
    return (num_below + spacing // 2) / spacing, spacing


def _histograms(pixels: Tensor, values: Tensor) -> Tensor:
    """The histogram of each channel, int64 `[n, 3, 256]`."""
    counts = torch.zeros((*pixels.shape[:2], 256), dtype=torch.int64, device=pixels.device)
    return counts.scatter_add_(2, pixels, values[1].expand_as(pixels))


def _slopes(magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    return magnitudes


def _factors(magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.float32]:
    return (1 + magnitudes).astype(np.float32)


def _kept_bits(num_bits: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    rows = np.full((len(num_bits), 2), 256)
    rows[:, 1] = 256 - 2 ** (8 - num_bits)
    return rows


def _threshold(thresholds: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    rows = np.full((len(thresholds), 2), 255)
    rows[:, 0] = np.ceil(thresholds)
    return rows


def _nothing(magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.int64]:
    """Threshold 0 for Invert; AutoContrast and Equalize ignore the parameters."""
    return np.full((len(magnitudes), 2), (0, 255))


# The operations of a family are consecutive, in the order that its `change` expects. The magnitude is a slope for
# shears, a fraction of the width or height for translations, degrees for Rotate, the factor - 1 for Sharpness, Color,
# Contrast and Brightness, the number of bits for Posterize, and the threshold for Solarize. The others have none.
OPERATIONS: dict[str, Operation] = {
    "ShearX": Operation(shear, _slopes),
    "ShearY": Operation(shear, _slopes),
    "TranslateX": Operation(transform_nearest, translation_x),
    "TranslateY": Operation(transform_nearest, translation_y),
    "Rotate": Operation(transform_nearest, rotation),
    "Sharpness": Operation(_enhance, _factors),
    "Color": Operation(_enhance, _factors),
    "Contrast": Operation(_enhance, _factors),
    "Brightness": Operation(_enhance, _factors),
    "Posterize": Operation(_look_up, _kept_bits),
    "Solarize": Operation(_look_up, _threshold),
    "Invert": Operation(_look_up, _nothing),
    "AutoContrast": Operation(_look_up, _nothing),
    "Equalize": Operation(_look_up, _nothing),
}
FAMILIES = tuple(
    Family(change, tuple(members)) for change, members in groupby(OPERATIONS.values(), key=lambda member: member.change)
)
_ALL = tuple(OPERATIONS.values())
MEASURING = [
    k for k, (name, member) in enumerate(OPERATIONS.items()) if member.change is _look_up or name == "Contrast"
]
"""Operations that need a lookup table or the mean of their image."""
