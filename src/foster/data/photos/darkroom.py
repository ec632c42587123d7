"""Photos are developed once: decoded over all cores, and kept as uint8 pixels on the device, on the host or on disk."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster import events
from foster.data.download import Follower
from foster.data.photos.cache import CacheFolder, Strip
from foster.data.photos.crops import centre_boxes, middle_boxes, whole_boxes
from foster.data.photos.decode import ImageError, quiet_pillow
from foster.data.photos.encoded import Encoded, PhotoFiles
from foster.data.photos.read import Unreadable, refuse_too_many
from foster.data.photos.resize import Resizing
from foster.errors import DataError
from foster.system.memory import num_cores

Place = Literal["auto", "device", "host", "disk"]

DEVELOPED_AT_ONCE = 512
DEVELOPED_TOGETHER = 16
"""Photos that a thread decodes and packs before it asks for more, so that it seldom waits for Python's lock."""

SHARE_OF_DEVICE = 0.6
"""How much of a device's free memory photos may take: the network, its gradients and the batches need the rest."""

SHARE_OF_HOST = 0.7
SHARE_AHEAD = 0.3
"""How much of the host's free memory photos may take that wait for their task."""

TYPICAL_SHORT_SIDE = 375
"""Of photos that keep their size, as ImageNet's have it."""


class Ahead:
    """Photos that are decoded before they are asked for, beside whatever else is done meanwhile: parts in order, each
    to be taken once. `cancel` ends the work after the photos in hand."""

    def __init__(self, pool: ThreadPoolExecutor, parts: Iterable[list[Future[Strip]]]) -> None:
        self._pool = pool
        self._parts = deque(parts)

    def __iter__(self) -> Iterator[list[Strip]]:
        while self._parts:
            yield _results(self._parts.popleft())

    def cancel(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class Darkroom:
    """How photos become pixels, and where those are kept. `auto` takes the first of device, host and disk with room.

    `cache` is the folder of the disk cache: what lies there is read instead of decoded, wherever it is kept then.
    """

    image_size: int
    short_side: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    place: Place = "auto"
    cache: Path | None = None
    num_threads: int = 0
    max_unreadable: int | None = None
    resizing: Resizing | None = None
    """What a network sees of a photo that it is not trained on; by default the field's square in the middle."""
    reencodes: bool = False
    """Whether exemplars are encoded once more, at the size in which photos are kept."""
    follower: Follower = field(default_factory=Follower)
    chosen: str = ""
    """Where the photos of the newest files went."""

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of what a network sees."""
        return self.resizing.size if self.resizing else (self.image_size, self.image_size)

    def frames(self, sizes: Tensor) -> Tensor:
        """What a network sees in inference of photos of these `sizes` `[N, 2]`: boxes `[N, 4]`."""
        if self.resizing is None:
            return centre_boxes(sizes)
        if self.resizing.rule == "stretch":
            return whole_boxes(sizes)
        return middle_boxes(sizes, self.resizing.width / self.resizing.height)

    @property
    def cache_folder(self) -> CacheFolder | None:
        return CacheFolder(self.cache, self.short_side) if self.cache else None

    def ahead(self, photos: Encoded) -> Ahead | None:
        """Begin to decode photos that `develop` will be asked for; None where there is no room for them to wait, and
        where they are read from the disk. Half of the cores are left to what is done meanwhile."""
        needed = len(photos) * typical_photo_bytes(self.short_side)
        if self.cache is not None or needed > SHARE_AHEAD * _available_memory():
            return None
        pool = ThreadPoolExecutor(max(1, self._threads // 2))
        return Ahead(pool, [self._begun(pool, photos, part) for part in _parts(photos)])

    def develop(self, photos: Encoded, what: str, coming: Iterable[Sequence[Strip]] | None = None) -> Iterator[Strip]:
        """All photos, some at a time, in order; those that cannot be read have no pixels, and are told of. `coming` are
        the same photos, decoded `ahead`.

        Raises DataError where too many cannot be read.
        """
        began, num_done, num_bytes = time.monotonic(), 0, 0
        unreadable: list[Unreadable] = []
        place = "" if isinstance(photos, PhotoFiles) else self.chosen
        for strips in coming or self._strips(photos):
            self.follower.stop.raise_if_set()
            for position, reason in (one for strip in strips for one in strip.unreadable.items()):
                unreadable.append(Unreadable(photos.name(position), reason))
                self._check(unreadable, photos, what)
            num_done += sum(len(strip.positions) for strip in strips)
            num_bytes += sum(strip.pixels.nbytes for strip in strips)
            if not place:
                place = self.chosen = self.choose(num_bytes * len(photos) // max(1, num_done))
            yield from self.kept(strips, place)
            self.follower.listener(events.Decoding(what, num_done, len(photos)))
        if len(photos) and len(unreadable) == len(photos):
            raise DataError(f"none of the {len(photos)} photos of {what} can be read: {unreadable[0].reason}")
        if unreadable:
            first = unreadable[0]
            message = f"{len(unreadable)} of {len(photos):,} photos of {what} cannot be read and are left out, such as "
            self.follower.warn(f"{message}'{first.name}': {first.reason}")
        seconds, facts = time.monotonic() - began, (len(photos), len(unreadable), num_bytes, place or "host")
        self.follower.listener(events.PhotosDecoded(what, *facts, seconds, was_ahead=coming is not None))

    def prepare(self, photos: PhotoFiles, what: str) -> int:
        """Write the disk cache of all files, from where an earlier call was interrupted. Returns its bytes."""
        folder = self.cache_folder
        assert folder is not None, "who prepares names a folder"
        unreadable: list[Unreadable] = []
        num_done = num_bytes = 0
        for part in folder.parts(photos):
            there = folder.read(part, photos, is_checked=True)
            strip = there or self._written(folder, part, photos)
            unreadable += [Unreadable(photos.name(k), reason) for k, reason in strip.unreadable.items()]
            self._check(unreadable, photos, what)
            num_done, num_bytes = num_done + len(part), num_bytes + strip.pixels.nbytes
            self.follower.listener(events.Decoding(what, num_done, len(photos), was_there=there is not None))
            self.follower.stop.raise_if_set()
        return num_bytes

    def _strips(self, photos: Encoded) -> Iterator[Sequence[Strip]]:
        folder = self.cache_folder
        if folder is None or not isinstance(photos, PhotoFiles):
            yield from self.decoded(photos, _parts(photos))
            return
        for part in folder.parts(photos):
            strip = folder.read(part, photos)
            if strip is None and self.place == "disk":
                strip = self._written(folder, part, photos)
            if strip is not None:
                yield [strip]
            else:
                yield from self.decoded(photos, [part])

    def _written(self, folder: CacheFolder, part: NDArray[np.int64], photos: PhotoFiles) -> Strip:
        (decoded,) = self.decoded(photos, [part])
        folder.write(part, photos, Strip.joined(decoded))
        strip = folder.read(part, photos)
        assert strip is not None, "what was written is there"
        return strip

    @property
    def _threads(self) -> int:
        return self.num_threads or num_cores()

    def decoded(self, photos: Encoded, parts: Iterable[NDArray[np.int64]]) -> Iterator[Sequence[Strip]]:
        """Each part over all cores; while one is put where it is kept, the next is decoded."""
        begun: deque[list[Future[Strip]]] = deque()
        with quiet_pillow(), ThreadPoolExecutor(self._threads) as pool:
            for part in parts:
                begun.append(self._begun(pool, photos, part))
                if len(begun) > 1:
                    yield _results(begun.popleft())
            yield from map(_results, begun)

    def _begun(self, pool: ThreadPoolExecutor, photos: Encoded, part: NDArray[np.int64]) -> list[Future[Strip]]:
        together = (part[first : first + DEVELOPED_TOGETHER] for first in range(0, len(part), DEVELOPED_TOGETHER))
        return [pool.submit(self._strip, photos, positions) for positions in together]

    def _strip(self, photos: Encoded, positions: NDArray[np.int64]) -> Strip:
        """Some photos, decoded one after the other in the thread that asks for it."""

        def one(position: int) -> NDArray[np.uint8] | str:
            try:
                return photos.pixels(position, self.short_side)
            except ImageError as error:
                return str(error)
            except OSError as error:
                return error.strerror or "it cannot be read"

        return Strip.of(positions, [one(position) for position in positions.tolist()])

    def kept(self, strips: Sequence[Strip], place: str) -> Iterator[Strip]:
        """Photos where they are to be kept; on a device, all of `strips` in one piece of its memory."""
        room, start = None, 0
        if place == "device":
            room = torch.empty(sum(len(strip.pixels) for strip in strips), dtype=torch.uint8, device=self.device)
        for strip in strips:
            if room is not None:
                room[start : start + len(strip.pixels)] = strip.pixels
                yield strip._replace(offsets=strip.offsets + start, pixels=room)
                start += len(strip.pixels)
            elif place == "host" and strip.is_on_disk:
                yield strip._replace(pixels=strip.pixels.clone())
            else:
                yield strip

    def choose(self, num_bytes: int) -> str:
        """Where photos of so many bytes go."""
        if self.place != "auto":
            return self.place if self.place != "device" or self.device.type == "cuda" else "host"
        return place_for(num_bytes, self.device, has_cache=self.cache is not None)

    def _check(self, unreadable: list[Unreadable], photos: Encoded, what: str) -> None:
        where, key = f"photos of {what}", "photos.max_unreadable"
        refuse_too_many(unreadable, len(photos), where, self.max_unreadable, key=key)


def _parts(photos: Encoded) -> Iterator[NDArray[np.int64]]:
    """The positions of photos that are decoded at once."""
    for first in range(0, len(photos), DEVELOPED_AT_ONCE):
        yield np.arange(first, min(first + DEVELOPED_AT_ONCE, len(photos)))


def _results(strips: Sequence[Future[Strip]]) -> list[Strip]:
    return [strip.result() for strip in strips]


def typical_photo_bytes(short_side: int) -> int:
    """What a decoded photo takes: three quarters as high as wide, at the shorter side at which it is kept."""
    side = short_side or TYPICAL_SHORT_SIDE
    return 3 * side * side * 4 // 3


def place_for(num_bytes: int, device: torch.device, has_cache: bool) -> str:
    """Where photos of so many bytes are kept by `auto`: on a GPU, in the host's memory, or in the cache on disk."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if num_bytes <= SHARE_OF_DEVICE * free:
            return "device"
    if num_bytes <= SHARE_OF_HOST * _available_memory():
        return "host"
    if has_cache:
        return "disk"
    raise DataError(
        f"the photos take {num_bytes / 2**30:.1f} GiB, more than there is room for; name a folder for a cache on disk "
        "(engine.photo_cache=FOLDER), or choose a smaller photos.short_side"
    )


def _available_memory() -> float:
    """Bytes that the host can give away, what it only keeps to be quick included; no limit where that is not known."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float("inf")
