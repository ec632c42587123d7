"""The photos of a learner. It reads small images as one tensor of the network's size, and keeps photos a seventh larger
than the network sees them, so that crops stay sharp."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foster.data.images import Stack, TensorStack
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import JPEG, ImageError, Resizing, decoded, quiet_pillow, typical_side, upright_size
from foster.data.photos.find import Photos, Unreadable
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import CPU, PhotoLoader, none_readable, refuse_too_many
from foster.errors import DataError
from foster.settings.learner_defaults import SMALL_SIDE
from foster.system.memory import main_memory

COPIES_OF_IMAGES, COPIES_OF_PHOTOS = 5, 2
"""The peak memory of a `learn`, in copies of its images. Small images are copied as read, after the known and held-out
ones are left out, joined with the exemplars, shuffled, and augmented; photos are kept larger, but once."""

NUM_MEASURED = 200
"""The number of photos from whose sizes a learner chooses its image size."""


@dataclass(frozen=True, eq=False)
class ReadPhotos:
    """The images that could be read, and those that could not."""

    stack: Stack
    positions: tuple[int, ...]
    """The positions of the readable images among all photos."""
    unreadable: tuple[Unreadable, ...]


def read_photos(photos: Photos, resizing: Resizing, max_unreadable: int | None = None) -> ReadPhotos:
    """All images at one size. Unreadable ones are listed and left out, up to a limit beyond which it stops.

    Photos for which the memory has no room are refused before any is read.
    """
    check_room(len(photos), resizing, COPIES_OF_IMAGES)
    images = [torch.empty(0, 3, *resizing.size, dtype=torch.uint8)]
    unreadable: list[Unreadable] = []
    kept: list[int] = []
    for batch in decoded(photos.items, resizing):
        unreadable += photos.unreadable(batch.unreadable)
        refuse_too_many(unreadable, len(photos), photos.title, max_unreadable)
        kept += batch.results
        images += [image[None] for image in batch.results.values()]
    return _read(TensorStack(torch.cat(images)), kept, photos, unreadable)


def read_for_training(photos: Photos, resizing: Resizing, loader: PhotoLoader) -> ReadPhotos:
    """All photos for a training. Small images are read at one size; larger photos are kept by `loader` a seventh larger
    than the network sees them, and each gets the id of what the network sees."""
    if not keeps_photos(resizing):
        return read_photos(photos, resizing, loader.max_unreadable)
    if loader.place != "disk":
        check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    stack = PhotoStack.of(photos.items, loader, photos.title)
    is_readable = stack.is_readable()
    (store,) = stack.stores
    unreadable = photos.unreadable(dict(sorted(store.unreadable.items())))
    return _read(stack[is_readable], is_readable.nonzero()[:, 0].tolist(), photos, unreadable)


def _read(stack: Stack, kept: Sequence[int], photos: Photos, unreadable: list[Unreadable]) -> ReadPhotos:
    if not kept:
        raise none_readable(unreadable, photos.title)
    return ReadPhotos(stack, tuple(kept), tuple(unreadable))


def typical_photo_side(photos: Photos) -> int:
    """The median of the shorter sides of some 200 images, spread evenly over all. Raises DataError if none of them can
    be read."""
    sizes: list[tuple[int, int]] = []
    reasons: dict[int, str] = {}
    with quiet_pillow():
        for position in range(0, len(photos), max(1, len(photos) // NUM_MEASURED)):
            try:
                sizes.append(upright_size(photos.items[position]))
            except ImageError as error:
                reasons[position] = str(error)
    if not sizes:
        raise none_readable(photos.unreadable(reasons), photos.title)
    return typical_side(sizes)


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


def kept_side(resizing: Resizing) -> int:
    """The shorter side of the photos that a learner keeps: a seventh more than the network sees."""
    return round(max(resizing.size) * 8 / 7)


def learner_loader(resizing: Resizing) -> PhotoLoader:
    """How a learner keeps photos in memory. Exemplars are encoded at the same size."""
    return PhotoLoader(max(resizing.size), kept_side(resizing), place="host", resizing=resizing)


def memory_of_files(files: Sequence[Sequence[tuple[str, bytes]]], resizing: Resizing) -> ExemplarMemory:
    """The images that a learner kept of each class as files (`Stack.files`), by their ids. Before anything is decoded,
    they are checked by `check_kept`. Raises DataError."""
    check_kept(files, resizing)
    memory = ExemplarMemory()
    for class_id, kept in enumerate(files):
        memory.remember(class_id, _stack_of_files(kept, resizing))
    return memory


def check_kept(files: Sequence[Sequence[tuple[str, bytes]]], resizing: Resizing) -> None:
    """Refuse images that were kept, without decoding them: if one cannot be read or has another size, or if the memory
    cannot hold all. Photos of a stranger may be as narrow as the network's images, and very long."""
    num_pixels = sum(_checked_pixels(photo_id, content, resizing) for kept in files for photo_id, content in kept)
    check_room(-(-num_pixels // (resizing.height * resizing.width)), resizing, num_copies=1)


def _checked_pixels(photo_id: str, content: bytes, resizing: Resizing) -> int:
    """How many pixels an image that was kept has; DataError if it has not the size in which images are kept."""
    try:
        width, height = upright_size(content)
    except ImageError as error:
        raise DataError(f"image {photo_id} cannot be read: {error}") from None
    if keeps_photos(resizing) and content.startswith(JPEG):
        fits = min(width, height) <= kept_side(resizing)
    else:
        fits = (height, width) == resizing.size
    if not fits:
        raise DataError(f"image {photo_id} is not {resizing.width} x {resizing.height}")
    return width * height


def _stack_of_files(files: Sequence[tuple[str, bytes]], resizing: Resizing) -> Stack:
    ids, contents = [photo_id for photo_id, _ in files], [content for _, content in files]
    stack = PhotoStack.of(contents, learner_loader(resizing), "the exemplars", ids)
    is_readable = stack.is_readable()
    if not bool(is_readable.all()):
        raise DataError(f"image {ids[int((~is_readable).nonzero()[0])]} cannot be read")
    return stack if keeps_photos(resizing) else TensorStack(stack.on_device(CPU))
