"""Many images, decoded at one size by several threads; what cannot be read is listed, up to a limit."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from foster.data.decoding import SUFFIXES, ImageError, ImageLike, decode, quiet_pillow, upright_size
from foster.data.resizing import Resizing
from foster.errors import DataError

MAX_UNREADABLE = 100
MAX_UNREADABLE_SHARE = 0.1
NUM_SHOWN = 5
NUM_MEASURED = 200
DECODED_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Photos:
    """Images that may not be decoded yet, with the class name of each. `place` names their source in messages."""

    items: Sequence[ImageLike]
    labels: tuple[str, ...]
    place: str

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


@dataclass(frozen=True, eq=False)
class ReadPhotos:
    """Decoded images uint8 `[N, 3, H, W]` with a class name each, and those that could not be read."""

    images: Tensor
    labels: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]


def read_photos(photos: Photos, resizing: Resizing, max_unreadable: int | None = None) -> ReadPhotos:
    """All images at one size. Unreadable ones are listed and left out, up to a limit beyond which it stops.

    The limit is 10 % of the images and at most 100, unless `max_unreadable` gives another; three are always borne.
    """
    limit = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * len(photos))))
    limit = limit if max_unreadable is None else max_unreadable
    _check_memory(len(photos), resizing)
    images = torch.empty(len(photos), 3, resizing.height, resizing.width, dtype=torch.uint8)
    unreadable: list[Unreadable] = []
    kept: list[int] = []
    for position, found in enumerate(decoded(photos.items, resizing)):
        if isinstance(found, ImageError):
            unreadable.append(Unreadable(item_name(photos.items[position], position), str(found)))
            if len(unreadable) > limit:
                raise _too_many(unreadable, photos, limit)
        else:
            images[len(kept)] = found
            kept.append(position)
    if not kept:
        raise _too_many(unreadable, photos, limit)
    return ReadPhotos(images[: len(kept)], tuple(photos.labels[k] for k in kept), tuple(unreadable))


def decoded(items: Sequence[ImageLike], resizing: Resizing) -> Iterator[Tensor | ImageError]:
    """Each item as uint8 `[3, H, W]` or the reason why not, in order; decoded by several threads, some at a time."""

    def one(item: ImageLike) -> Tensor | ImageError:
        try:
            return resizing(decode(item, target_side=max(resizing.size)))
        except ImageError as error:
            return error

    remaining = iter(items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        while chunk := list(islice(remaining, DECODED_AT_ONCE)):
            with quiet_pillow():
                found = list(pool.map(one, chunk))
            yield from found


def measured_sizes(photos: Photos) -> list[tuple[int, int]]:
    """Width and height of up to 200 images, spread evenly over all; unreadable ones are passed over."""
    step = max(1, len(photos) // NUM_MEASURED)
    sizes = []
    with quiet_pillow():
        for item in photos.items[::step]:
            try:
                sizes.append(upright_size(item))
            except ImageError:
                continue
    return sizes


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, by their names' endings; each folder's files first, everything sorted."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural_order)
        images = [name for name in files if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")]
        found += [Path(parent, name) for name in sorted(images, key=natural_order)]
    return found


def expanded(paths: Iterable[str | Path]) -> list[Path]:
    """Files as they are, whatever their names; folders as the images below them; in the order given."""
    files: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        files += image_files(path) if path.is_dir() else [path]
    return files


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which `class 2` stands before `class 10`."""
    parts = re.split(r"(\d+)", name)
    # isdecimal is what int() reads: a superscript two is a digit, but no decimal.
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part]


def shown(path: str | Path) -> str:
    """A path as text that can be printed and encoded, also where its bytes are no valid text."""
    return os.fsencode(path).decode("utf-8", "replace")


def item_name(item: ImageLike, position: int) -> str:
    return shown(item) if isinstance(item, str | Path) else f"image {position}"


def _too_many(unreadable: list[Unreadable], photos: Photos, limit: int) -> DataError:
    listed = "; ".join(f"'{found.name}': {found.reason}" for found in unreadable[:NUM_SHOWN])
    more = "; ..." if len(unreadable) > NUM_SHOWN else ""
    return DataError(
        f"stopped at {len(unreadable)} unreadable of {len(photos)} images in {photos.place} (limit {limit}): "
        f"{listed}{more}; mend or remove them, or raise max_unreadable"
    )


def _check_memory(num_images: int, resizing: Resizing) -> None:
    """All images of a learn call are held at once, and once more while an epoch is augmented."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return
    needed = 2 * num_images * 3 * resizing.height * resizing.width
    if needed > 0.9 * total:
        raise DataError(
            f"{num_images:,} images of {resizing.height} x {resizing.width} need {needed / 2**30:.1f} GiB of memory, "
            f"but there are {total / 2**30:.1f}; choose a smaller image_size or learn the classes in several calls"
        )
