"""Augmentation of batches on their device: crop, flip, brightness, AutoAugment, Cutout.

All random decisions are drawn on the CPU first, as small arrays with a row for each image, and sent to the device
together. So the same generator gives the same images on every device and for every chunk size, and the host never waits
for the device.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from foster.data.augmentation import autoaugment
from foster.data.augmentation.geometry import crop, resized_crop, windows
from foster.data.augmentation.operations import Work, brighten, send
from foster.data.photos.crops import centre_boxes, random_boxes
from foster.kernels.operations import can_operate
from foster.settings.augmentation import Augmentation

CHUNK_PIXELS = {"cpu": 1 << 19, "cuda": 1 << 23}
"""Images are augmented in chunks of this many pixels, so that temporary tensors fit into a CPU's cache or a GPU's
memory."""

Change = Callable[[slice, bool], Sequence[Work]]
"""(part, whether kernels can be used) -> the work for that part: one kind of augmentation whose random numbers are
drawn."""


class Changes:
    """The augmentation of a set of images, with all random numbers drawn. It can be applied to any part of the set; the
    result does not depend on the division into parts or on the device."""

    def __init__(self, augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> None:
        planned = [plan(augmentation, shape, generator) for plan in PLANS]
        self._changes = [change for change in planned if change is not None]

    def done_to_all(self, images: Tensor) -> Tensor:
        """The augmented set. `images` is not changed; it is returned itself if there is nothing to do."""
        if not self._changes:
            return images
        chunks = [self.done_to(images[part], part) for part in _chunks(images)]
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)

    def done_to(self, images: Tensor, part: slice) -> Tensor:
        """The augmented `images`, which are the part `part` of the set. `images` is not changed."""
        has_kernels = can_operate(images)
        works = [work for change in self._changes for work in change(part, has_kernels)]
        tensors = iter(send([array for work in works for array in work.arrays], images.device))
        for work in works:
            images = work.change(images, *islice(tensors, len(work.arrays)))
        return images


class PhotoChanges(Changes):
    """The augmentation of photos of these `sizes` `[N, 2]`: the rectangle that is cut out of each (`boxes` `[N, 4]`)
    and whether it is mirrored (`is_mirrored` `[N]`). The other changes are applied to the resulting images of `shape`.
    If the augmentation has no random rectangles, `frames` gives them."""

    def __init__(
        self,
        augmentation: Augmentation,
        sizes: Tensor,
        shape: torch.Size,
        generator: torch.Generator,
        frames: Callable[[Tensor], Tensor] = centre_boxes,
    ) -> None:
        share = augmentation.resized_crop
        self.boxes = random_boxes(sizes, share, generator) if share else frames(sizes)
        self.is_mirrored = torch.zeros(shape[0], dtype=torch.int64)
        if augmentation.flip:
            self.is_mirrored = torch.randint(2, (shape[0],), generator=generator)
        padding = 0 if share else augmentation.crop_padding
        others = {"resized_crop": None, "crop_padding": padding, "flip": False}
        super().__init__(augmentation.model_copy(update=others), shape, generator)


def _chunks(images: Tensor) -> Iterator[slice]:
    """Slices that cover all images, at least one."""
    num_images, _, height, width = images.shape
    size = max(1, CHUNK_PIXELS.get(images.device.type, CHUNK_PIXELS["cpu"]) // max(1, height * width))
    for first in range(0, max(1, num_images), size):
        yield slice(first, first + size)


def _plan_resized_crop(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Change | None:
    if not augmentation.resized_crop:
        return None
    sizes = torch.tensor([shape[2:]]).expand(shape[0], 2)
    boxes = random_boxes(sizes, augmentation.resized_crop, generator).numpy()
    return lambda part, has_kernels: [Work([boxes[part]], resized_crop)]


def _plan_crop(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Change | None:
    """Crop and flip in one gather of pixels."""
    padding = 0 if augmentation.resized_crop else augmentation.crop_padding
    if not (padding or augmentation.flip):
        return None
    offsets, is_flipped = np.zeros((shape[0], 2), np.int64), np.zeros(shape[0], np.int64)
    if padding:
        offsets = torch.randint(2 * padding + 1, (shape[0], 2), generator=generator).numpy()
    if augmentation.flip:
        is_flipped = torch.randint(2, (shape[0],), generator=generator).numpy()
    crops = windows(offsets, is_flipped, shape[3], padding)
    return lambda part, has_kernels: [Work([crops[part]], partial(crop, padding=padding))]


def _plan_brightness(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Change | None:
    if not augmentation.brightness:
        return None
    low, high = 1 - augmentation.brightness, 1 + augmentation.brightness
    factors = low + (high - low) * torch.rand(shape[0], generator=generator).numpy()
    return lambda part, has_kernels: [Work([factors[part]], brighten)]


def _plan_policy(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Change | None:
    if augmentation.policy == "none":
        return None
    decisions = autoaugment.draw(augmentation.policy, shape[0], generator)
    return lambda part, has_kernels: autoaugment.works(decisions.part(part), shape[2], shape[3], has_kernels)


def _plan_cutout(augmentation: Augmentation, shape: torch.Size, generator: torch.Generator) -> Change | None:
    if not augmentation.cutout:
        return None
    num_images, _, height, width = shape
    rows, columns = (torch.randint(size, (num_images,), generator=generator).numpy() for size in (height, width))
    # Half a pixel less makes the square symmetric around the centre.
    centres = np.stack((rows, columns), axis=1) - 0.5
    return lambda part, has_kernels: [Work([centres[part]], partial(_cut_out, reach=augmentation.cutout // 2))]


def _cut_out(images: Tensor, centres: Tensor, reach: int) -> Tensor:
    """Make pixels black whose row and column are both less than `reach` from the centre `[n, 2]` of the square."""
    height, width = images.shape[2:]
    pixels = torch.arange(max(height, width), device=images.device)
    is_kept = (pixels - centres.unsqueeze(2)).abs_() >= reach
    row_is_kept, column_is_kept = is_kept[:, 0, :height], is_kept[:, 1, :width]
    return torch.mul(images, (row_is_kept.unsqueeze(2) | column_is_kept.unsqueeze(1)).unsqueeze(1))


PLANS = (_plan_resized_crop, _plan_crop, _plan_brightness, _plan_policy, _plan_cutout)
