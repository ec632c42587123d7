"""Photos as a learner takes them in: decoded once, each with the id that its picture has for life."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foster.data.photos.album import Album
from foster.data.photos.cache import Strip
from foster.data.photos.darkroom import Darkroom, Developed
from foster.data.photos.decode import ImageError
from foster.data.photos.encoded import PhotoItems
from foster.data.photos.pixels import image_id, shrunk
from foster.data.photos.read import (
    COPIES_OF_PHOTOS,
    DECODED_AT_ONCE,
    SMALLEST_SIDE,
    Photos,
    Unreadable,
    check_room,
    each_decoded,
    item_name,
    none_readable,
    noted_unreadable,
    read_photos,
)
from foster.data.photos.resize import Resizing
from foster.data.photos.store import PhotoStore
from foster.settings.learner_defaults import SMALL_SIDE


class _Photo(NamedTuple):
    pixels: NDArray[np.uint8]
    id: str


@dataclass(frozen=True, eq=False)
class ReadStack:
    """Images or photos with a class name each, and those that could not be read."""

    stack: Tensor | Album
    labels: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]


def are_photos(resizing: Resizing) -> bool:
    """Whether what a network sees at this size is kept as photos, larger than that; small images are kept as seen."""
    return max(resizing.size) > SMALL_SIDE


def learners_darkroom(resizing: Resizing) -> Darkroom:
    """How a learner keeps photos: in the host's memory, a seventh larger than its network sees them, so that what is
    cut out of them stays sharp. Exemplars are encoded at that size."""
    side = max(resizing.size)
    return Darkroom(side, round(side * 8 / 7), place="host", resizing=resizing, reencodes=True)


def read_stack(photos: Photos, resizing: Resizing, max_unreadable: int | None = None) -> ReadStack:
    """All photos. Unreadable ones are listed and left out, up to the limit of `read_photos`."""
    if not are_photos(resizing):
        read = read_photos(photos, resizing, max_unreadable)
        return ReadStack(read.images, read.labels, read.unreadable)
    check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    darkroom = learners_darkroom(resizing)

    def make(picture: Image.Image) -> _Photo:
        # A picture has the id of what the network sees of it: it is the same whatever is kept.
        return _Photo(shrunk(picture, darkroom.short_side), image_id(resizing(picture)))

    found: list[_Photo] = []
    strips: list[Strip] = []
    ids: list[str] = []
    kept: list[int] = []
    unreadable: list[Unreadable] = []

    def close_strip() -> None:
        positions = np.arange(len(ids) - len(found), len(ids))
        strips.append(Strip.of(positions, [photo.pixels for photo in found]))
        found.clear()

    for position, photo in enumerate(each_decoded(photos.items, make, max(resizing.size), SMALLEST_SIDE)):
        if isinstance(photo, ImageError):
            noted_unreadable(photo, position, photos, max_unreadable, unreadable)
            continue
        found.append(photo)
        ids.append(photo.id)
        kept.append(position)
        if len(found) == DECODED_AT_ONCE:
            close_strip()
    close_strip()
    names = [item_name(photos.items[k], k) for k in kept]
    store = PhotoStore(PhotoItems(names, ids), darkroom)
    for strip in strips:
        store.keep(Developed(strip.positions, strip.sizes, strip.offsets, strip.pixels))
    album = Album([store], np.zeros(len(ids), np.int16), np.arange(len(ids)))
    if not ids:
        raise none_readable(unreadable, photos)
    return ReadStack(album, tuple(photos.labels[k] for k in kept), tuple(unreadable))


def album_of(images: Tensor, darkroom: Darkroom) -> Album:
    """Images uint8 `[N, 3, H, W]` of the network's size as photos of that size."""
    pixels = [np.ascontiguousarray(image.permute(1, 2, 0).cpu().numpy()) for image in images]
    strip = Strip.of(np.arange(len(pixels)), pixels)
    ids = [image_id(image.cpu()) for image in images]
    store = PhotoStore(PhotoItems([f"image {k}" for k in range(len(ids))], ids), darkroom)
    store.keep(Developed(strip.positions, strip.sizes, strip.offsets, strip.pixels))
    return Album([store], np.zeros(len(ids), np.int16), np.arange(len(ids)))
