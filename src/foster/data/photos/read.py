"""Many images, decoded at one size by several threads; what cannot be read is listed, up to a limit."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import torch
from PIL import Image
from torch import Tensor

from foster.data.photos.decode import MISSING, ImageError, ImageLike, decode, quiet_pillow, upright_size
from foster.data.photos.find import shown
from foster.data.photos.resize import Resizing
from foster.errors import DataError
from foster.system.memory import main_memory

MAX_UNREADABLE = 100
MAX_UNREADABLE_SHARE = 0.1
NUM_SHOWN = 5
SMALLEST_SIDE = 4
"""Smaller pictures show nothing: they are neither learned nor answered."""

NUM_MEASURED = 200
DECODED_AT_ONCE = 256

Outcome = TypeVar("Outcome")

COPIES_OF_PHOTOS = 2
"""What photos that are kept larger than a network sees them take, in copies of what it sees."""

COPIES_OF_A_LEARN = 5
"""How often the images of a `learn` are in memory at its peak: as read, without those known or held out, beside the
exemplars, shuffled, and augmented."""


@dataclass(frozen=True, eq=False)
class Photos:
    """Images that may not be decoded yet, with the class name of each. `title` names their source in messages.

    What a folder also holds is counted: `passed_over` as in FoundFiles, and classes without any image. `hint` is what
    to look at where files are missing, `doubt` what to look at before they are learned.
    """

    items: Sequence[ImageLike]
    labels: tuple[str, ...]
    title: str
    passed_over: Mapping[str, int] = field(default_factory=dict)
    empty_classes: tuple[str, ...] = ()
    hint: str = ""
    doubt: str = ""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every class once, in the order in which it comes."""
        return tuple(dict.fromkeys(self.labels))


@dataclass(frozen=True)
class Unreadable:
    """An image that cannot be used, and why."""

    name: str
    reason: str


Images = TypeVar("Images", covariant=True)


@dataclass(frozen=True, eq=False)
class ReadPhotos(Generic[Images]):
    """Images, such as uint8 `[N, 3, H, W]`, with a class name each, and those that could not be read."""

    images: Images
    positions: tuple[int, ...]
    """Where those that could be read stand among all photos."""
    labels: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]


def read_photos(
    photos: Photos, resizing: Resizing, max_unreadable: int | None = None, num_copies: int = COPIES_OF_A_LEARN
) -> ReadPhotos[Tensor]:
    """All images at one size. Unreadable ones are listed and left out, up to a limit beyond which it stops.

    The limit is 10 % of the images and at most 100, unless `max_unreadable` gives another; three are always borne.
    Before anything is read, it is refused where the memory has no room for `num_copies` of all images.
    """
    check_room(len(photos), resizing, num_copies)
    images = torch.empty(len(photos), 3, resizing.height, resizing.width, dtype=torch.uint8)
    unreadable: list[Unreadable] = []
    kept: list[int] = []
    for position, image in enumerate(decoded(photos.items, resizing)):
        if isinstance(image, ImageError):
            noted_unreadable(str(image), position, photos, max_unreadable, unreadable)
        else:
            images[len(kept)] = image
            kept.append(position)
    if not kept:
        raise none_readable(unreadable, photos)
    return ReadPhotos(images[: len(kept)], tuple(kept), tuple(photos.labels[k] for k in kept), tuple(unreadable))


def noted_unreadable(
    reason: str, position: int, photos: Photos, max_unreadable: int | None, unreadable: list[Unreadable]
) -> None:
    """Add one more to those that cannot be read. Raises DataError where they are too many."""
    unreadable.append(Unreadable(item_name(photos.items[position], position), reason))
    refuse_too_many(unreadable, len(photos), f"images in {photos.title}", max_unreadable, _hint(unreadable, photos))


def refuse_too_many(
    unreadable: Sequence[Unreadable],
    num_photos: int,
    where: str,
    asked: int | None,
    hint: str = "",
    key: str = "max_unreadable",
) -> None:
    """Raise DataError where more photos than `asked` for, in the setting `key`, or than usual cannot be read."""
    usual = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * num_photos)))
    limit = usual if asked is None else asked
    if len(unreadable) > limit:
        raise DataError(
            f"stopped at {len(unreadable)} unreadable of {num_photos} {where} (limit {limit}): "
            f"{_listed(unreadable)}{hint}; mend or remove them, or raise {key}"
        )


def decoded(items: Sequence[ImageLike], resizing: Resizing) -> Iterator[Tensor | ImageError]:
    """Each item as uint8 `[3, H, W]` or the reason why not, in order; decoded by several threads, some at a time."""
    return each_decoded(items, resizing, max(resizing.size))


def each_decoded(
    items: Sequence[ImageLike], work: Callable[[Image.Image], Outcome], target_side: int
) -> Iterator[Outcome | ImageError]:
    """What `work` makes of each picture, at `target_side` or larger, or the reason why it cannot be read, in order."""

    def one(item: ImageLike) -> Outcome | ImageError:
        try:
            return work(decode_shown(item, target_side))
        except ImageError as error:
            return error

    remaining = iter(items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        while chunk := list(islice(remaining, DECODED_AT_ONCE)):
            with quiet_pillow():
                outcomes = list(pool.map(one, chunk))
            yield from outcomes


def decode_shown(item: ImageLike, target_side: int) -> Image.Image:
    """As `decode`; a picture with a side below `SMALLEST_SIDE` shows nothing. Raises ImageError."""
    picture = decode(item, target_side)
    if min(picture.size) < SMALLEST_SIDE:
        raise ImageError(f"too small to show anything: {picture.width} x {picture.height} pixels")
    return picture


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


def item_name(item: ImageLike, position: int) -> str:
    return shown(item) if isinstance(item, str | Path) else f"image {position}"


def none_readable(unreadable: list[Unreadable], photos: Photos) -> DataError:
    """The error for photos of which all that were tried are unreadable."""
    is_all = len(unreadable) == len(photos)
    tried = f"the {len(photos)} images" if is_all else f"{len(unreadable)} images tried of the {len(photos)}"
    return DataError(f"none of {tried} in {photos.title} can be read: {_listed(unreadable)}{_hint(unreadable, photos)}")


def _hint(unreadable: list[Unreadable], photos: Photos) -> str:
    is_wanted = photos.hint and any(photo.reason == MISSING for photo in unreadable)
    return f"; {photos.hint}" if is_wanted else ""


def _listed(unreadable: Sequence[Unreadable]) -> str:
    listed = "; ".join(f"'{photo.name}': {photo.reason}" for photo in unreadable[:NUM_SHOWN])
    return listed + ("; ..." if len(unreadable) > NUM_SHOWN else "")


def check_room(num_images: int, resizing: Resizing, num_copies: int) -> None:
    """Refuse what the memory cannot hold: a system that runs out of it ends the process without a word."""
    total = main_memory()
    needed = num_copies * num_images * 3 * resizing.height * resizing.width
    if total is not None and needed > 0.9 * total:
        raise DataError(
            f"{num_images:,} images of {resizing.height} x {resizing.width} need {needed / 2**30:.1f} GiB of memory, "
            f"but there are {total / 2**30:.1f}; choose a smaller image_size or learn the classes in several calls"
        )
