"""Decoded photos of many sizes, and where their pixels are kept.

A `PhotoLoader` decodes each photo once, over all cores. Its pixels (uint8 `[height, width, 3]`, one photo after the
other) lie on the GPU, in the host's memory or in a cache on disk; a `PhotoStore` knows where.

Several processes share the photos of an experiment: a photo's number decides which process decodes it.
"""

import tempfile
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
from foster.data.photos.cache import CacheFolder, Decoded, PhotoList
from foster.data.photos.crops import centre_boxes, middle_boxes, whole_boxes
from foster.data.photos.decode import (
    ImageError,
    Resizing,
    decode_photo,
    file_pixels,
    image_id,
    jpeg_of,
    quiet_pillow,
    shrunk,
)
from foster.errors import DataError
from foster.system.files import written
from foster.system.memory import num_cores
from foster.system.processes import gathered, process_group

Place = Literal["auto", "device", "host", "disk"]
CPU = torch.device("cpu")

MAX_UNREADABLE = 100
MAX_UNREADABLE_SHARE = 0.1
NUM_SHOWN = 5

LOADED_AT_ONCE = 512
LOADED_TOGETHER = 16
"""Photos that a thread decodes and packs before it asks for more, so that it seldom waits for Python's lock."""

SHARE_OF_DEVICE = 0.6
"""How much of a device's free memory photos may take: the network, its gradients and the batches need the rest."""

SHARE_OF_HOST = 0.7
TYPICAL_SHORT_SIDE = 375
"""Of ImageNet's photos, which stands for those of unknown size."""

NUM_STRATA = 32
"""The largest number of strata, and so of processes that share photos."""


@dataclass(frozen=True)
class Unreadable:
    """An image that cannot be used, and why."""

    name: str
    reason: str


def refuse_too_many(
    unreadable: Sequence[Unreadable],
    num_photos: int,
    where: str,
    asked: int | None,
    hint: str = "",
    key: str = "max_unreadable",
) -> None:
    """Raise DataError where more photos cannot be read than `asked` for in the setting `key`, or than usual."""
    usual = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * num_photos)))
    limit = usual if asked is None else asked
    if len(unreadable) > limit:
        raise DataError(
            f"stopped at {len(unreadable)} unreadable of {num_photos} {where} (limit {limit}): "
            f"{listed(unreadable)}{hint}; mend or remove them, or raise {key}"
        )


def listed(unreadable: Sequence[Unreadable]) -> str:
    listed = "; ".join(f"'{photo.name}': {photo.reason}" for photo in unreadable[:NUM_SHOWN])
    return listed + ("; ..." if len(unreadable) > NUM_SHOWN else "")


@dataclass
class PhotoLoader:
    """How photos become pixels, and where those are kept. `auto` takes the first of device, host and disk with room.

    `cache` is the folder of the disk cache: photos that lie there are read instead of decoded, wherever they are kept.
    """

    image_size: int
    short_side: int
    device: torch.device = CPU
    place: Place = "auto"
    cache: Path | None = None
    num_threads: int = 0
    max_unreadable: int | None = None
    resizing: Resizing | None = None
    """What a network sees of a photo in inference; by default the usual square in the middle. Where it is given, photos
    get the id of what the network sees."""
    reencodes: bool = False
    """Whether exemplars are encoded again at the size in which photos are kept."""
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

    def load(self, photos: PhotoList, positions: NDArray[np.int64], title: str) -> Iterator[Decoded]:
        """The photos at these positions, some at a time, in the place where they are kept. Those that cannot be read
        have no pixels; a warning counts them. Raises DataError where they are too many."""
        began, num_done, num_bytes = time.monotonic(), 0, 0
        unreadable: list[Unreadable] = []
        place = "" if photos.are_files else self.chosen
        for parts in self._parts(photos, positions):
            self.follower.stop.raise_if_set()
            for position, reason in (one for part in parts for one in part.unreadable.items()):
                unreadable.append(Unreadable(photos.name(position), reason))
                self._check(unreadable, len(positions), title)
            num_done += sum(len(part.positions) for part in parts)
            num_bytes += sum(part.pixels.nbytes for part in parts)
            if not place:
                place = self.chosen = self.choose(num_bytes * len(positions) // max(1, num_done))
            yield from self.kept(parts, place)
            self.follower.listener(events.Decoding(title, num_done, len(positions)))
        if len(positions) and len(unreadable) == len(positions):
            raise DataError(f"none of the {len(positions)} photos of {title} can be read: {unreadable[0].reason}")
        if unreadable:
            first = unreadable[0]
            count = f"{len(unreadable)} of {len(positions):,} photos of {title}"
            self.follower.warn(f"{count} cannot be read and are left out, such as '{first.name}': {first.reason}")
        seconds, facts = time.monotonic() - began, (len(positions), len(unreadable), num_bytes, place or "host")
        self.follower.listener(events.PhotosDecoded(title, *facts, seconds))

    def prepare(self, photos: PhotoList, title: str) -> int:
        """Write the disk cache of all files, from where an earlier call was interrupted. Returns its bytes."""
        assert self.cache is not None, "the settings name a folder"
        folder = CacheFolder(self.cache, self.short_side)
        unreadable: list[Unreadable] = []
        num_done = num_bytes = 0
        for part in folder.parts(photos, np.arange(len(photos))):
            there = folder.read(part, photos, is_checked=True)
            piece = there or self._written(folder, part, photos)
            unreadable += [Unreadable(photos.name(k), reason) for k, reason in piece.unreadable.items()]
            self._check(unreadable, len(photos), title)
            num_done, num_bytes = num_done + len(part), num_bytes + piece.pixels.nbytes
            self.follower.listener(events.Decoding(title, num_done, len(photos), was_there=there is not None))
            self.follower.stop.raise_if_set()
        return num_bytes

    def _parts(self, photos: PhotoList, positions: NDArray[np.int64]) -> Iterator[Sequence[Decoded]]:
        if self.cache is None or self.resizing is not None or not photos.are_files:
            firsts = range(0, len(positions), LOADED_AT_ONCE)
            yield from self.decoded(photos, (positions[first : first + LOADED_AT_ONCE] for first in firsts))
            return
        folder = CacheFolder(self.cache, self.short_side)
        for part in folder.parts(photos, positions):
            piece = folder.read(part, photos)
            if piece is None and self.place == "disk":
                piece = self._written(folder, part, photos)
            if piece is not None:
                yield [piece]
            else:
                yield from self.decoded(photos, [part])

    def _written(self, folder: CacheFolder, part: NDArray[np.int64], photos: PhotoList) -> Decoded:
        (pieces,) = self.decoded(photos, [part])
        folder.write(part, photos, Decoded.joined(pieces))
        piece = folder.read(part, photos)
        assert piece is not None, "it was just written"
        return piece

    def decoded(self, photos: PhotoList, parts: Iterable[NDArray[np.int64]]) -> Iterator[Sequence[Decoded]]:
        """Each part over all cores; while one is put where it is kept, the next is decoded."""
        begun: deque[list[Future[Decoded]]] = deque()
        with quiet_pillow(), ThreadPoolExecutor(self.num_threads or num_cores()) as pool:
            for part in parts:
                firsts = range(0, len(part), LOADED_TOGETHER)
                together = (part[first : first + LOADED_TOGETHER] for first in firsts)
                begun.append([pool.submit(self._decoded, photos, positions) for positions in together])
                if len(begun) > 1:
                    yield [piece.result() for piece in begun.popleft()]
            for pieces in begun:
                yield [piece.result() for piece in pieces]

    def _decoded(self, photos: PhotoList, positions: NDArray[np.int64]) -> Decoded:
        """Some photos, decoded one after the other by the calling thread."""

        def one(position: int) -> NDArray[np.uint8] | str:
            try:
                return self.pixels(photos, position)
            except ImageError as error:
                return str(error)
            except OSError as error:
                return error.strerror or "it cannot be read"

        return Decoded.of(positions, [one(position) for position in positions.tolist()])

    def pixels(self, photos: PhotoList, position: int) -> NDArray[np.uint8]:
        """One decoded photo `[height, width, 3]` at the size in which it is kept. Raises OSError and ImageError."""
        if self.resizing is None or photos.ids[position]:
            return file_pixels(photos.content(position), self.short_side)
        picture = decode_photo(photos.items[position], max(self.resizing.size))
        photos.ids[position] = image_id(self.resizing(picture))
        return shrunk(picture, self.short_side)

    def kept(self, parts: Sequence[Decoded], place: str) -> Iterator[Decoded]:
        """Photos in the place where they are kept; on a device, all `parts` in one piece of its memory."""
        room, start = None, 0
        if place == "device":
            room = torch.empty(sum(len(part.pixels) for part in parts), dtype=torch.uint8, device=self.device)
        for part in parts:
            if room is not None:
                room[start : start + len(part.pixels)] = part.pixels
                yield part._replace(offsets=part.offsets + start, pixels=room)
                start += len(part.pixels)
            elif place == "host" and part.is_on_disk:
                yield part._replace(pixels=part.pixels.clone())
            else:
                yield part

    def choose(self, num_bytes: int) -> str:
        """Where photos of so many bytes go. Raises DataError where there is no room."""
        if self.place != "auto":
            return self.place if self.place != "device" or self.device.type == "cuda" else "host"
        return place_for(num_bytes, self.device, has_cache=self.cache is not None)

    def _check(self, unreadable: list[Unreadable], num_photos: int, title: str) -> None:
        key = "photos.max_unreadable"
        refuse_too_many(unreadable, num_photos, f"photos of {title}", self.max_unreadable, key=key)


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
    """Bytes of the host's memory that can be used; no limit where that is not known."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float("inf")


class PhotoStore:
    """Photos that share a list, and the pixels of those that are decoded. A photo's number never changes."""

    def __init__(self, photos: PhotoList, loader: PhotoLoader, title: str = "the photos") -> None:
        self.photos = photos
        self.loader = loader
        self.title = title
        self.sizes = np.zeros((len(photos), 2), np.int64)
        self.is_known = np.zeros(len(photos), bool)
        """Photos whose size is known on every rank."""
        self.is_loaded = np.zeros(len(photos), bool)
        self._chunk = np.zeros(len(photos), np.int32)
        self._offset = np.zeros(len(photos), np.int64)
        self._chunks: list[Tensor] = []
        self._starts: NDArray[np.int64] | None = None
        """The addresses of the chunks in the memory of the device that holds them all, once they were asked for."""

    def survey(self, numbers: NDArray[np.int64]) -> None:
        """Find the sizes of photos that are not known yet. Each process decodes its share and sends the others the
        sizes. All processes must call it together."""
        if process_group().is_alone:
            self.load(numbers)
            return
        missing = np.unique(numbers[~self.is_known[numbers]])
        if not len(missing):
            return
        # From the cache nothing is decoded: every process may read all of it.
        is_own = owners_of(missing) == process_group().rank
        self.load(missing if self.loader.cache else missing[is_own])
        shares = [missing[owners_of(missing) == rank] for rank in range(process_group().size)]
        own = torch.from_numpy(self.sizes[shares[process_group().rank]])
        for share, sizes in zip(shares, gathered(own, [len(share) for share in shares]), strict=True):
            self.sizes[share], self.is_known[share] = sizes.numpy(), True
        others = missing[(self.sizes[missing].min(1) == 0) & ~is_own]
        if len(others) and not self.loader.cache:
            count = f"{len(others)} more photos of {self.title}"
            first = self.photos.name(int(others[0]))
            self.loader.follower.warn(f"{count} cannot be read by other processes and are left out, such as '{first}'")

    def load(self, numbers: NDArray[np.int64]) -> None:
        """Decode those of the photos whose pixels are not here yet."""
        missing = np.unique(numbers[~self.is_loaded[numbers]])
        if len(missing):
            for piece in self.loader.load(self.photos, missing, self.title):
                self.keep(piece)

    def keep(self, piece: Decoded) -> None:
        """Keep decoded photos at their positions in the list."""
        rows = piece.positions
        self.sizes[rows], self.is_loaded[rows] = piece.sizes, True
        if not self._chunks or self._chunks[-1] is not piece.pixels:
            self._chunks.append(piece.pixels)
            self._starts = None
        self._chunk[rows], self._offset[rows] = len(self._chunks) - 1, piece.offsets

    def keep_at_best_place(self, piece: Decoded, num_photos: int) -> None:
        """Keep decoded photos, some of `num_photos`, where there is room for all."""
        loader = self.loader
        if not loader.chosen:
            try:
                loader.chosen = loader.choose(piece.pixels.nbytes * num_photos // len(piece.positions))
            except DataError:  # what the whole memory cannot hold has been refused
                loader.chosen = "host"
        if loader.chosen == "disk":
            piece = piece._replace(pixels=_on_disk(piece.pixels, loader.cache))
        for part in loader.kept([piece], loader.chosen):
            self.keep(part)

    def content(self, number: int) -> bytes:
        """The photo as an exemplar: its file, or a JPEG of the size in which it is kept. Raises OSError."""
        if not self.loader.reencodes or isinstance(self.photos.items[number], bytes):
            return self.photos.content(number)
        if self.is_loaded[number]:
            return jpeg_of(self.pixels(number).cpu().numpy())
        return jpeg_of(self.loader.pixels(self.photos, number))

    def pixels(self, number: int) -> Tensor:
        """A decoded photo, uint8 `[height, width, 3]`, where it is kept."""
        height, width = self.sizes[number].tolist()
        start = int(self._offset[number])
        return self._chunks[int(self._chunk[number])][start : start + 3 * height * width].view(height, width, 3)

    def addresses(self, numbers: NDArray[np.int64], device: torch.device) -> NDArray[np.int64] | None:
        """Where in the memory of `device` the photos begin; None where they are kept elsewhere."""
        index = torch.cuda.current_device() if device.index is None else device.index
        if self._starts is None:
            if any((chunk.device.type, chunk.device.index) != (device.type, index) for chunk in self._chunks):
                return None
            self._starts = np.array([chunk.data_ptr() for chunk in self._chunks], np.int64)
        return np.asarray(self._starts[self._chunk[numbers]] + self._offset[numbers], dtype=np.int64)


def _on_disk(pixels: Tensor, folder: Path | None) -> Tensor:
    """The same in an unnamed file in `folder`, which is freed with the tensor."""
    if not len(pixels):
        return pixels
    with written(folder or Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(pixels.numpy().data)
        file.flush()
        return torch.from_numpy(np.memmap(file.name, np.uint8, "c"))


def owners_of(numbers: NDArray[np.int64], num_processes: int | None = None) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * (num_processes or process_group().size) // NUM_STRATA, dtype=np.int64)
