"""Augmentation of whole batches on the device that holds them: crop, flip, brightness, AutoAugment, Cutout.

All random decisions are drawn on the CPU first, as small tensors with a row for each image, and the pixels follow.
So the same generator gives the same images on every device and for every chunk size, and the device is never asked
which image needs what.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foster.data import autoaugment
from foster.data.geometry import crop, flip, resized_crop
from foster.data.operations import brighten, to_device

ASPECT_RANGE = (3 / 4, 4 / 3)  # width over height of a resized crop
CROP_ATTEMPTS = 10

# Images are processed some at a time, so that temporary tensors fit: in the cache of a CPU, in the memory of a GPU.
CHUNK_PIXELS = {"cpu": 1 << 19, "cuda": 1 << 23}


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images, in this order; the defaults do nothing."""

    crop_padding: int = 0
    """A window of the image's size at a random place in the image with this many black pixels around it."""
    flip: bool = False
    """Mirrored left to right, every other time."""
    brightness: float = 0.0
    """Brightness times a factor uniform in [1 - brightness, 1 + brightness]."""
    policy: str = "none"
    """AutoAugment's policy: "none", "cifar10" or "imagenet"."""
    cutout: int = 0
    """A black square with this side, its centre anywhere in the image."""
    resized_crop: tuple[float, float] | None = None
    """In place of the crop: a rectangle with a share of the area in this range, enlarged to the image's size."""


# One kind of change with its decisions drawn: takes some of the images and says which ones they are.
Step = Callable[[Tensor, slice], Tensor]


def augment(images: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Images `[N, 3, H, W]` uint8 to as many changed ones, on the same device, by decisions drawn from a CPU generator.

    The given images are never written to; where there is nothing to do they are returned themselves.
    """
    planned = [plan(augmentation, images.shape, generator) for plan in PLANS]
    steps = [step for step in planned if step is not None]
    if not steps:
        return images
    chunks = []
    for part in _chunks(images):
        chunk = images[part]
        for step in steps:
            chunk = step(chunk, part)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks)


def normalise(images: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(images / 255 - mean) / std for images `[N, 3, H, W]` uint8, mean and std `[3]`; computed in float32."""
    mean, std = (values.to(images.device, torch.float32, non_blocking=True).view(1, -1, 1, 1) for values in (mean, std))
    return torch.addcmul(-mean / std, images.float(), 1 / (255 * std)).to(dtype)


def _chunks(images: Tensor) -> Iterator[slice]:
    """Slices that cover all images, at least one."""
    num_images, _, height, width = images.shape
    size = max(1, CHUNK_PIXELS.get(images.device.type, CHUNK_PIXELS["cpu"]) // max(1, height * width))
    for first in range(0, max(1, num_images), size):
        yield slice(first, first + size)


def _plan_crop(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    padding = augmentation.crop_padding
    if not padding or augmentation.resized_crop:
        return None
    offsets = torch.randint(2 * padding + 1, (shape[0], 2), generator=generator)
    return lambda images, part: crop(images, to_device(offsets[part], images.device), padding)


def _plan_resized_crop(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    if not augmentation.resized_crop:
        return None
    boxes = _draw_boxes(shape, augmentation.resized_crop, generator)
    return lambda images, part: resized_crop(images, to_device(boxes[part], images.device))


def _draw_boxes(shape: torch.Size, scale: tuple[float, float], generator: torch.Generator) -> Tensor:
    """Rectangles `[N, 4]` int64 (top, left, height, width) in images of this shape.

    Area and logarithm of the aspect are uniform; of ten tries the first that fits is taken. If none fits it is the
    largest rectangle in the middle with an aspect in the range.
    """
    num_images, _, height, width = shape
    low, high = ASPECT_RANGE
    random = torch.rand(4, num_images, CROP_ATTEMPTS, dtype=torch.float64, generator=generator)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * random[0])
    aspect = (math.log(low) + (math.log(high) - math.log(low)) * random[1]).exp()
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    tops = (random[2] * (height - heights + 1)).floor()
    lefts = (random[3] * (width - widths + 1)).floor()
    first = fits.int().argmax(1)
    tried = torch.stack((tops, lefts, heights, widths), dim=2)[torch.arange(num_images), first]
    middle_height, middle_width = min(height, round(width / low)), min(width, round(height * high))
    middle = (height - middle_height) // 2, (width - middle_width) // 2, middle_height, middle_width
    return torch.where(fits.any(1, keepdim=True), tried, torch.tensor(middle, dtype=torch.float64)).long()


def _plan_flip(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    if not augmentation.flip:
        return None
    is_flipped = torch.randint(2, (shape[0],), generator=generator)
    return lambda images, part: flip(images, to_device(is_flipped[part], images.device))


def _plan_brightness(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    if not augmentation.brightness:
        return None
    low, high = max(0.0, 1 - augmentation.brightness), 1 + augmentation.brightness
    factors = low + (high - low) * torch.rand(shape[0], generator=generator)
    return lambda images, part: brighten(images, to_device(factors[part], images.device))


def _plan_policy(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    if augmentation.policy == "none":
        return None
    decisions = autoaugment.draw(augmentation.policy, shape[0], generator)
    return lambda images, part: autoaugment.apply(images, decisions.part(part))


def _plan_cutout(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Step | None:
    if not augmentation.cutout:
        return None
    num_images, _, height, width = shape
    centres = torch.stack([torch.randint(size, (num_images,), generator=generator) for size in (height, width)], dim=1)
    return lambda images, part: _cut_out(images, to_device(centres[part], images.device), augmentation.cutout // 2)


def _cut_out(images: Tensor, centres: Tensor, reach: int) -> Tensor:
    """Black from `reach` pixels before each centre (row, column) to just before as many after it."""
    row, column = centres.view(-1, 2, 1, 1, 1).unbind(1)
    rows = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    columns = torch.arange(images.shape[3], device=images.device)
    is_cut = (rows >= row - reach) & (rows < row + reach) & (columns >= column - reach) & (columns < column + reach)
    return torch.mul(images, ~is_cut)


PLANS = (_plan_crop, _plan_resized_crop, _plan_flip, _plan_brightness, _plan_policy, _plan_cutout)
