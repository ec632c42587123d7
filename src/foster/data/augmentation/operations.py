"""AutoAugment's 14 operations: on a GPU a kernel does one operation of all images in one pass, elsewhere Pillow does
them image by image.

The arithmetic of the kernel is Pillow's on x86, so results do not depend on the device. On ARM, Pillow is compiled with
fused multiply-adds: up to 0.23 % of the values of shears, Sharpness, Color and Contrast differ by 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from foster.data.augmentation.geometry import FILL, rotation, translation_x, translation_y
from foster.kernels.operations import COLUMNS, operate

GREY = (FILL,) * 3


class Operation(NamedTuple):
    """An operation on a picture with a magnitude, and the parameters of the kernel: (magnitudes `[n]`, height, width)
    -> a row for each image."""

    change: Callable[[Image.Image, float], Image.Image]
    prepare: Callable[[NDArray[np.float64], int, int], NDArray[Any]]


class Work(NamedTuple):
    """A deferred change of some images: `change(images, *send(arrays, device))`."""

    arrays: Sequence[NDArray[Any]]
    change: Callable[..., Tensor]


def send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Small arrays as tensors on `device`; the host does not wait for the transfer."""
    tensors = [torch.from_numpy(array) for array in arrays]
    if device.type == "cuda":
        tensors = [tensor.pin_memory() for tensor in tensors]  # asynchronous only from pinned memory
    return [tensor.to(device, non_blocking=True) for tensor in tensors]


def by_pillow(images: Tensor, operations: Iterable[Sequence[int]], magnitudes: Iterable[Sequence[float]]) -> Tensor:
    """New images `[n, 3, H, W]` uint8 after the operations of each, which are positions in OPERATIONS, or -1 for
    none."""
    pixels = images.permute(0, 2, 3, 1).to("cpu", copy=True, memory_format=torch.contiguous_format).numpy()
    for image, chosen, sizes in zip(pixels, operations, magnitudes, strict=True):
        picture = Image.fromarray(image)
        for operation, magnitude in zip(chosen, sizes, strict=True):
            if operation >= 0:
                picture = _ALL[operation].change(picture, magnitude)
        image[:] = np.asarray(picture)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(images.device)


def by_kernel(operations: NDArray[Any], magnitudes: NDArray[np.float64], height: int, width: int) -> Work:
    """The work that applies one operation to each image in one pass on the GPU. `operations` `[n]` are positions in
    OPERATIONS, or -1 for none."""
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


def _transformed(image: Image.Image, *coefficients: float, is_cubic: bool = False) -> Image.Image:
    """Output pixel (x, y) is input pixel (a x + b y + c, d x + e y + f), or grey outside of the image."""
    resampling = Image.Resampling.BICUBIC if is_cubic else Image.Resampling.NEAREST
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, resampling, fillcolor=GREY)


# The magnitude is a slope for shears, a fraction of the width or height for translations, degrees for Rotate, the
# factor - 1 for Sharpness, Color, Contrast and Brightness, the number of bits for Posterize, and the threshold for
# Solarize. The others have none. The kernel knows the operations by their positions.
OPERATIONS: dict[str, Operation] = {
    "ShearX": Operation(lambda image, slope: _transformed(image, 1, slope, 0, 0, 1, 0, is_cubic=True), _slopes),
    "ShearY": Operation(lambda image, slope: _transformed(image, 1, 0, 0, slope, 1, 0, is_cubic=True), _slopes),
    "TranslateX": Operation(
        lambda image, by: _transformed(image, 1, 0, math.floor(by * image.width + 0.5), 0, 1, 0), translation_x
    ),
    "TranslateY": Operation(
        lambda image, by: _transformed(image, 1, 0, 0, 0, 1, math.floor(by * image.height + 0.5)), translation_y
    ),
    "Rotate": Operation(lambda image, degrees: image.rotate(degrees, fillcolor=GREY), rotation),
    "Sharpness": Operation(lambda image, change: ImageEnhance.Sharpness(image).enhance(1 + change), _factors),
    "Color": Operation(lambda image, change: ImageEnhance.Color(image).enhance(1 + change), _factors),
    "Contrast": Operation(lambda image, change: ImageEnhance.Contrast(image).enhance(1 + change), _factors),
    "Brightness": Operation(lambda image, change: ImageEnhance.Brightness(image).enhance(1 + change), _factors),
    "Posterize": Operation(lambda image, bits: ImageOps.posterize(image, int(bits)), _kept_bits),
    "Solarize": Operation(lambda image, threshold: ImageOps.solarize(image, math.ceil(threshold)), _threshold),
    "Invert": Operation(lambda image, _: ImageOps.invert(image), _nothing),
    "AutoContrast": Operation(lambda image, _: ImageOps.autocontrast(image), _nothing),
    "Equalize": Operation(lambda image, _: ImageOps.equalize(image), _nothing),
}
_ALL = tuple(OPERATIONS.values())
MEASURING = [
    position
    for position, name in enumerate(OPERATIONS)
    if name in ("Contrast", "Posterize", "Solarize", "Invert", "AutoContrast", "Equalize")
]
"""Operations that need a lookup table or the mean of their image."""
