"""All photos of a source at once, as a learner reads them: those that can be read, and why others cannot.

Small images become one tensor of the network's size. Photos are kept in their own shapes, a seventh larger than the
network sees them (`PhotoStack`), so that crops of them stay sharp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from foster.data.images import Stack, TensorStack
from foster.data.photos.decode import (
    ImageError,
    Resizing,
    decoded,
    quiet_pillow,
    upright_size,
)
from foster.data.photos.find import Photos, item_name
from foster.data.photos.stack import COPIES_OF_PHOTOS, PhotoStack
from foster.data.photos.store import CPU, PhotoLoader, Place, Unreadable, listed, refuse_too_many
from foster.errors import DataError
from foster.settings.learner_defaults import SMALL_SIDE
from foster.system.memory import main_memory

NUM_MEASURED = 200


@dataclass(frozen=True, eq=False)
class ReadPhotos:
    """The images that could be read, with a class name each, and those that could not."""

    stack: Stack
    positions: tuple[int, ...]
    """Where those that could be read stand among all photos."""
    labels: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def images(self) -> Tensor:
        """uint8 `[N, 3, H, W]`, where they were read at one size."""
        return self.stack.tensor


def read_photos(photos: Photos, resizing: Resizing, max_unreadable: int | None = None) -> ReadPhotos:
    """All images at one size. Unreadable ones are listed and left out, up to a limit beyond which it stops.

    Photos for which the memory has no room are refused before any is read.
    """
    check_room(len(photos), resizing, Stack.num_copies)
    images = torch.empty(len(photos), 3, resizing.height, resizing.width, dtype=torch.uint8)
    unreadable: list[Unreadable] = []
    kept: list[int] = []
    for position, image in enumerate(decoded(photos.items, resizing)):
        if isinstance(image, ImageError):
            note_unreadable(str(image), position, photos, max_unreadable, unreadable)
        else:
            images[len(kept)] = image
            kept.append(position)
    return _read(TensorStack(images[: len(kept)]), kept, photos, unreadable)


def read_for_training(photos: Photos, resizing: Resizing, loader: PhotoLoader) -> ReadPhotos:
    """The same for a learner. Photos above the size of small images are kept a seventh larger than the network sees
    them, by `loader`; each gets the id of what the network sees."""
    if not keeps_photos(resizing):
        return read_photos(photos, resizing, loader.max_unreadable)
    if loader.place != "disk":
        check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    stack = PhotoStack.of(photos.items, loader, photos.title)
    is_readable = stack.readable()
    (store,) = stack.stores
    unreadable = [Unreadable(item_name(photos.items[k], k), reason) for k, reason in sorted(store.unreadable.items())]
    return _read(stack[is_readable], is_readable.nonzero()[:, 0].tolist(), photos, unreadable)


def _read(stack: Stack, kept: Sequence[int], photos: Photos, unreadable: list[Unreadable]) -> ReadPhotos:
    if not kept:
        raise none_readable(unreadable, photos)
    return ReadPhotos(stack, tuple(kept), tuple(photos.labels[k] for k in kept), tuple(unreadable))


def note_unreadable(
    reason: str, position: int, photos: Photos, max_unreadable: int | None, unreadable: list[Unreadable]
) -> None:
    """Add an image to those that cannot be read. Raises DataError where they are too many."""
    unreadable.append(Unreadable(item_name(photos.items[position], position), reason))
    refuse_too_many(unreadable, len(photos), photos.title, max_unreadable)


def none_readable(unreadable: list[Unreadable], photos: Photos) -> DataError:
    """The error for photos of which all that were tried are unreadable."""
    is_all = len(unreadable) == len(photos)
    tried = f"the {len(photos)} images" if is_all else f"{len(unreadable)} images tried of the {len(photos)}"
    return DataError(f"none of {tried} in {photos.title} can be read: {listed(unreadable)}")


def measured_sizes(photos: Photos) -> tuple[list[tuple[int, int]], list[Unreadable]]:
    """Width and height of some 200 images, spread evenly over all, and those of them that could not be read."""
    sizes: list[tuple[int, int]] = []
    unreadable: list[Unreadable] = []
    with quiet_pillow():
        for position in range(0, len(photos), max(1, len(photos) // NUM_MEASURED)):
            item = photos.items[position]
            try:
                sizes.append(upright_size(item))
            except ImageError as error:
                unreadable.append(Unreadable(item_name(item, position), str(error)))
    return sizes, unreadable


def check_room(num_images: int, resizing: Resizing, num_copies: int) -> None:
    """Refuse images that the memory cannot hold: a system that runs out of it kills the process without a message."""
    total = main_memory()
    needed = num_copies * num_images * 3 * resizing.height * resizing.width
    if needed > 0.9 * total:
        raise DataError(
            f"{num_images:,} images of {resizing.height} x {resizing.width} need {needed / 2**30:.1f} GiB of memory, "
            f"but there are {total / 2**30:.1f}; choose a smaller image_size or learn the classes in several calls"
        )


def keeps_photos(resizing: Resizing) -> bool:
    """Whether a learner keeps photos larger than the network sees them at this size; small images are kept as seen."""
    return max(resizing.size) > SMALL_SIDE


def learner_loader(
    resizing: Resizing,
    device: torch.device = CPU,
    place: Place = "host",
    cache: Path | None = None,
    max_unreadable: int | None = None,
) -> PhotoLoader:
    """How a learner keeps photos: a seventh larger than its network sees them, so that crops stay sharp. Exemplars are
    encoded at that size."""
    side = max(resizing.size)
    kept = round(side * 8 / 7)
    return PhotoLoader(side, kept, device, place, cache, max_unreadable, resizing=resizing, reencodes=True)


def stack_for_learner(images: Tensor, resizing: Resizing) -> Stack:
    """Images of the network's size, kept as a learner keeps images of that size."""
    return PhotoStack.of_tensor(images, learner_loader(resizing)) if keeps_photos(resizing) else TensorStack(images)


def stack_of_files(files: Mapping[str, bytes], ids: Sequence[str], resizing: Resizing, is_tried: bool = True) -> Stack:
    """Images that a learner kept as files (`Stack.files`), by their names. Raises DataError with the name of one that
    cannot be read or has another size; a large image is not decoded. Photos that are not `is_tried` are decoded when
    they are needed, and only their headers are looked at now."""
    for name, content in files.items():
        try:
            width, height = upright_size(content)
        except ImageError as error:
            raise DataError(f"'{name}' cannot be read: {error}") from None
        is_photo = keeps_photos(resizing) and name.endswith(".jpg")
        if is_photo and min(width, height) <= learner_loader(resizing).short_side:
            continue
        if (height, width) != resizing.size:
            raise DataError(f"'{name}' is not {resizing.width} x {resizing.height}")
    if keeps_photos(resizing):
        stack: Stack = PhotoStack.of(files.values(), learner_loader(resizing), "the exemplars", ids)
        is_readable = stack.readable() if is_tried else torch.ones(len(files), dtype=torch.bool)
        if not bool(is_readable.all()):
            raise DataError(f"'{[*files][int((~is_readable).nonzero()[0])]}' cannot be read")
        return stack
    images = torch.empty(len(files), 3, *resizing.size, dtype=torch.uint8)
    for k, (name, image) in enumerate(zip(files, decoded([*files.values()], resizing), strict=True)):
        if isinstance(image, ImageError):
            raise DataError(f"'{name}' cannot be read: {image}")
        images[k] = image
    return TensorStack(images)
