"""Photos as a learner takes them in: decoded once, each with the id that its picture has for life."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foster.data.photos.album import Album
from foster.data.photos.cache import Strip
from foster.data.photos.darkroom import Darkroom, Place
from foster.data.photos.encoded import PhotoItems
from foster.data.photos.read import (
    COPIES_OF_PHOTOS,
    DECODED_AT_ONCE,
    Photos,
    ReadPhotos,
    Unreadable,
    check_room,
    none_readable,
    noted_unreadable,
    read_photos,
)
from foster.data.photos.resize import Resizing
from foster.data.photos.store import PhotoStore, owners_of
from foster.errors import DataError
from foster.settings.learner_defaults import SMALL_SIDE
from foster.system.crew import crew
from foster.system.files import written

CPU = torch.device("cpu")


def are_photos(resizing: Resizing) -> bool:
    """Whether what a network sees at this size is kept as photos, larger than that; small images are kept as seen."""
    return max(resizing.size) > SMALL_SIDE


def learners_darkroom(
    resizing: Resizing, device: torch.device = CPU, place: Place = "host", cache: Path | None = None
) -> Darkroom:
    """How a learner keeps photos: a seventh larger than its network sees them, so that what is cut out of them stays
    sharp. Exemplars are encoded at that size."""
    side = max(resizing.size)
    return Darkroom(side, round(side * 8 / 7), device, place, cache, resizing=resizing, reencodes=True)


def read_stack(
    photos: Photos, resizing: Resizing, max_unreadable: int | None = None, darkroom: Darkroom | None = None
) -> ReadPhotos[Tensor | Album]:
    """All photos. Unreadable ones are listed and left out, up to the limit of `read_photos`.

    Those above the size of small images go where the `darkroom` says. Of several processes each decodes its share, and
    tells the others what it found.
    """
    if not are_photos(resizing):
        return read_photos(photos, resizing, max_unreadable)
    darkroom = darkroom or learners_darkroom(resizing)
    if darkroom.cache is None:
        check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    items = PhotoItems(photos.items, resizing)
    store = PhotoStore(items, darkroom)
    numbers = np.arange(len(photos))
    own = numbers[owners_of(numbers) == crew().rank]
    unreadable: list[Unreadable] = []
    reasons: dict[int, str] = {}
    for strips in darkroom.decoded(items, [own[k : k + DECODED_AT_ONCE] for k in range(0, len(own), DECODED_AT_ONCE)]):
        strip = Strip.joined(strips)
        _keep(store, strip, len(own))
        reasons |= strip.unreadable
        for position, reason in strip.unreadable.items() if crew().is_alone else ():  # else when all know it
            noted_unreadable(reason, position, photos, max_unreadable, unreadable)
    if not crew().is_alone:
        store.share(numbers)
        missing = np.flatnonzero(store.sizes.min(1) == 0)
        of_others = missing[owners_of(missing) != crew().rank]
        for strips in darkroom.decoded(items, [of_others] if len(of_others) else []):
            reasons |= Strip.joined(strips).unreadable
        for position in missing.tolist():
            noted_unreadable(reasons[position], position, photos, max_unreadable, unreadable)
    kept = np.flatnonzero(store.sizes.min(1) > 0)
    if not len(kept):
        raise none_readable(unreadable, photos)
    album = Album([store], np.zeros(len(kept), np.int16), kept)
    positions = tuple(kept.tolist())
    return ReadPhotos(album, positions, tuple(photos.labels[k] for k in positions), tuple(unreadable))


def _keep(store: PhotoStore, strip: Strip, num_photos: int) -> None:
    """Put decoded photos, some of `num_photos`, where there is room for all."""
    darkroom = store.darkroom
    if not darkroom.chosen:
        try:
            darkroom.chosen = darkroom.choose(strip.pixels.nbytes * num_photos // len(strip.positions))
        except DataError:  # what the whole memory cannot hold has been refused
            darkroom.chosen = "host"
    if darkroom.chosen == "disk":
        strip = strip._replace(pixels=_on_disk(strip.pixels, darkroom))
    for part in darkroom.kept([strip], darkroom.chosen):
        store.keep(part)


def _on_disk(pixels: Tensor, darkroom: Darkroom) -> Tensor:
    """The same in a file in the cache's folder that is gone when nobody needs it any more."""
    if not len(pixels):
        return pixels
    with (
        written(darkroom.cache or Path(tempfile.gettempdir())),
        tempfile.NamedTemporaryFile(dir=darkroom.cache) as file,
    ):
        file.write(pixels.numpy().data)
        file.flush()
        return torch.from_numpy(np.memmap(file.name, np.uint8, "c"))


def album_of(images: Tensor, darkroom: Darkroom) -> Album:
    """Images uint8 `[N, 3, H, W]` of the network's size as photos of that size."""
    items = PhotoItems(list(images.cpu()), Resizing(*images.shape[2:]))
    numbers, store = np.arange(len(items)), PhotoStore(items, darkroom)
    store.keep(Strip.of(numbers, [items.pixels(number, 0) for number in numbers.tolist()]))
    return Album([store], np.zeros(len(items), np.int16), numbers)
