"""Decoded photos of many sizes, and where their pixels are kept.

A `PhotoLoader` decodes each photo once, over all cores. Its pixels (uint8 `[height, width, 3]`, one photo after the
other) lie on the GPU, in the host's memory or in a file; a `PhotoStore` knows where.

Several processes share the photos of an experiment: a photo's number decides which process decodes it.
"""

import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster import events
from foster.data.download import Follower
from foster.data.photos.crops import centre_boxes, whole_boxes
from foster.data.photos.decode import (
    MAX_FILE_BYTES,
    ImageError,
    ImageLike,
    Resizing,
    decode,
    decode_photo,
    file_pixels,
    image_id,
    jpeg_of,
    png_of,
    quiet_pillow,
    shrunk,
)
from foster.data.photos.find import item_name
from foster.errors import DataError
from foster.system.files import read_limited, written
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
    unreadable: Sequence[Unreadable], num_photos: int, title: str, asked: int | None, key: str = "max_unreadable"
) -> None:
    """Raise DataError where more photos of `title` cannot be read than `asked` for in the setting `key`.

    By default it is 10 % of the photos and at most 100; three are always allowed.
    """
    usual = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * num_photos)))
    limit = usual if asked is None else asked
    if len(unreadable) > limit:
        raise DataError(
            f"stopped at {len(unreadable)} unreadable of {num_photos} photos of {title} (limit {limit}): "
            f"{listed(unreadable)}; mend or remove them, or raise {key}"
        )


def listed(unreadable: Sequence[Unreadable]) -> str:
    """The first photos that cannot be read, and each reason once."""
    names: dict[str, list[str]] = {}
    for photo in unreadable[:NUM_SHOWN]:
        names.setdefault(photo.reason, []).append(f"'{photo.name}'")
    listed = "; ".join(f"{', '.join(own)}: {reason}" for reason, own in names.items())
    return listed + ("; ..." if len(unreadable) > NUM_SHOWN else "")


class Decoded(NamedTuple):
    """Some decoded photos: their positions `[n]`, height and width `[n, 2]` (0 where unreadable), where each begins
    `[n]`, the pixels in one piece, and why some cannot be read."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pixels: Tensor
    unreadable: Mapping[int, str]

    @classmethod
    def of(cls, positions: NDArray[np.int64], photos: Sequence[NDArray[np.uint8] | str]) -> "Decoded":
        """Pixels `[height, width, 3]` of each photo, or the reason why it cannot be read."""
        shapes = [(0, 0) if isinstance(one, str) else one.shape[:2] for one in photos]
        sizes = np.array(shapes, np.int64).reshape(-1, 2)
        lengths = 3 * sizes.prod(1)
        ends = lengths.cumsum()
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
        room = pixels.numpy()
        unreadable = {}
        for position, one, end in zip(positions.tolist(), photos, ends.tolist(), strict=True):
            if isinstance(one, str):
                unreadable[position] = one
            else:
                room[end - one.size : end] = one.ravel()
        return cls(positions, sizes, ends - lengths, pixels, unreadable)


@dataclass
class PhotoLoader:
    """How photos become pixels, and where those are kept. `auto` takes the first of device, host and disk with room.

    On disk, pixels lie in unnamed files in the folder `cache`.
    """

    image_size: int
    short_side: int
    device: torch.device = CPU
    place: Place = "auto"
    cache: Path | None = None
    max_unreadable: int | None = None
    resizing: Resizing | None = None
    """What a network sees of a photo in inference; by default the usual square in the middle. Where it is given, photos
    get the id of what the network sees."""
    reencodes: bool = False
    """Whether exemplars are encoded again at the size in which photos are kept."""
    follower: Follower = field(default_factory=Follower)

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of what a network sees."""
        return self.resizing.size if self.resizing else (self.image_size, self.image_size)

    def frames(self, sizes: Tensor) -> Tensor:
        """What a network sees in inference of photos of these `sizes` `[N, 2]`: boxes `[N, 4]`."""
        return whole_boxes(sizes) if self.resizing else centre_boxes(sizes)

    def load(self, store: "PhotoStore", positions: NDArray[np.int64]) -> Iterator[Decoded]:
        """The photos at these positions, some at a time, in the place where they are kept. Those that cannot be read
        have no pixels; a warning counts them. Raises DataError where they are too many."""
        began, num_done, num_bytes, title = time.monotonic(), 0, 0, store.title
        unreadable: list[Unreadable] = []
        place = ""
        firsts = range(0, len(positions), LOADED_AT_ONCE)
        for parts in self._decoded(store, (positions[first : first + LOADED_AT_ONCE] for first in firsts)):
            self.follower.stop.raise_if_set()
            for position, reason in (one for part in parts for one in part.unreadable.items()):
                unreadable.append(Unreadable(store.name(position), reason))
                key = "max_unreadable" if self.resizing else "photos.max_unreadable"
                refuse_too_many(unreadable, len(positions), title, self.max_unreadable, key)
            num_done += sum(len(part.positions) for part in parts)
            num_bytes += sum(part.pixels.nbytes for part in parts)
            if not place:
                place = self.choose(num_bytes * len(positions) // max(1, num_done))
            yield from self._kept(parts, place)
            self.follower.listener(events.Decoding(title, num_done, len(positions)))
        if len(positions) and len(unreadable) == len(positions):
            raise DataError(f"none of the {len(positions)} photos of {title} can be read: {listed(unreadable)}")
        if unreadable:
            first = unreadable[0]
            count = f"{len(unreadable)} of {len(positions):,} photos of {title}"
            self.follower.warn(f"{count} cannot be read and are left out, such as '{first.name}': {first.reason}")
        seconds, facts = time.monotonic() - began, (len(positions), len(unreadable), num_bytes, place or "host")
        self.follower.listener(events.PhotosDecoded(title, *facts, seconds))

    def _decoded(self, store: "PhotoStore", parts: Iterable[NDArray[np.int64]]) -> Iterator[Sequence[Decoded]]:
        """Each part over all cores; while one is put where it is kept, the next is decoded."""
        begun: deque[list[Future[Decoded]]] = deque()
        with quiet_pillow(), ThreadPoolExecutor(num_cores()) as pool:
            for part in parts:
                firsts = range(0, len(part), LOADED_TOGETHER)
                together = (part[first : first + LOADED_TOGETHER] for first in firsts)
                begun.append([pool.submit(self._decoded_together, store, positions) for positions in together])
                if len(begun) > 1:
                    yield [piece.result() for piece in begun.popleft()]
            for pieces in begun:
                yield [piece.result() for piece in pieces]

    def _decoded_together(self, store: "PhotoStore", positions: NDArray[np.int64]) -> Decoded:
        """Some photos, decoded one after the other by the calling thread."""

        def one(position: int) -> NDArray[np.uint8] | str:
            try:
                return self.pixels(store, position)
            except ImageError as error:
                return str(error)
            except OSError as error:
                return error.strerror or "it cannot be read"

        return Decoded.of(positions, [one(position) for position in positions.tolist()])

    def pixels(self, store: "PhotoStore", position: int) -> NDArray[np.uint8]:
        """One decoded photo `[height, width, 3]` at the size in which it is kept. Raises OSError and ImageError."""
        if self.resizing is None or store.ids[position]:
            return file_pixels(store.encoded(position), self.short_side)
        picture = decode_photo(store.items[position], max(self.resizing.size))
        store.ids[position] = image_id(self.resizing(picture))
        return shrunk(picture, self.short_side)

    def _kept(self, parts: Sequence[Decoded], place: str) -> Iterator[Decoded]:
        """Photos in the place where they are kept; on a device or on disk, all `parts` in one piece."""
        if place == "host":
            yield from parts
            return
        room = (
            _in_file(parts, self.cache)
            if place == "disk"
            else torch.cat([part.pixels for part in parts]).to(self.device)
        )
        start = 0
        for part in parts:
            yield part._replace(offsets=part.offsets + start, pixels=room)
            start += len(part.pixels)

    def choose(self, num_bytes: int) -> str:
        """Where photos of so many bytes go. Raises DataError where there is no room."""
        if self.place != "auto":
            return self.place if self.place != "device" or self.device.type == "cuda" else "host"
        return place_for(num_bytes, self.device, has_cache=self.cache is not None)


def typical_photo_bytes(short_side: int) -> int:
    """What a decoded photo takes: three quarters as high as wide, at the shorter side at which it is kept."""
    side = short_side or TYPICAL_SHORT_SIDE
    return 3 * side * side * 4 // 3


def place_for(num_bytes: int, device: torch.device, has_cache: bool) -> str:
    """Where photos of so many bytes are kept by `auto`: on a GPU, in the host's memory, or on disk."""
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
        f"the photos take {num_bytes / 2**30:.1f} GiB, more than there is room for; name a folder on disk for them "
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
    """A list of photos in any form (paths, encoded bytes, other images), and the pixels of those that are decoded. A
    photo's number is its position in the list."""

    def __init__(
        self, items: Iterable[ImageLike], loader: PhotoLoader, title: str = "the photos", ids: Sequence[str] = ()
    ) -> None:
        self.items = items if isinstance(items, Sequence) else list(items)
        self.ids = list(ids) or [""] * len(self.items)
        """The id of each photo; empty until it is known."""
        self.loader = loader
        self.title = title
        num_photos = len(self.items)
        self.sizes = np.zeros((num_photos, 2), np.int64)
        self.is_known = np.zeros(num_photos, bool)
        """Photos whose size is known on every rank."""
        self.is_loaded = np.zeros(num_photos, bool)
        self.unreadable: dict[int, str] = {}
        """Why photos cannot be read, by their numbers."""
        self._chunk = np.zeros(num_photos, np.int32)
        self._offset = np.zeros(num_photos, np.int64)
        self._chunks: list[Tensor] = []
        self._starts: NDArray[np.int64] | None = None
        """The addresses of the chunks in the memory of the device that holds them all, once they were asked for."""

    def __len__(self) -> int:
        return len(self.items)

    def name(self, number: int) -> str:
        return item_name(self.items[number], number)

    def encoded(self, number: int) -> bytes:
        """The photo as an image file. Raises OSError."""
        item = self.items[number]
        if isinstance(item, str | Path):
            return read_limited(Path(item), MAX_FILE_BYTES)
        return item if isinstance(item, bytes) else png_of(np.asarray(decode(item)))

    def survey(self, numbers: NDArray[np.int64]) -> None:
        """Find the sizes of photos that are not known yet. Each process decodes its share and sends the others the
        sizes. All processes must call it together."""
        if process_group().is_alone:
            self.load(numbers)
            return
        missing = np.unique(numbers[~self.is_known[numbers]])
        if not len(missing):
            return
        is_own = owners_of(missing) == process_group().rank
        self.load(missing[is_own])
        shares = [missing[owners_of(missing) == rank] for rank in range(process_group().size)]
        found = torch.from_numpy(self.sizes[shares[process_group().rank]])
        for share, sizes in zip(shares, gathered(found, [len(share) for share in shares]), strict=True):
            self.sizes[share], self.is_known[share] = sizes.numpy(), True
        others = missing[(self.sizes[missing].min(1) == 0) & ~is_own]
        if len(others):
            count = f"{len(others)} more photos of {self.title}"
            first = self.name(int(others[0]))
            self.loader.follower.warn(f"{count} cannot be read by other processes and are left out, such as '{first}'")

    def load(self, numbers: NDArray[np.int64]) -> None:
        """Decode those of the photos whose pixels are not here yet."""
        missing = np.unique(numbers[~self.is_loaded[numbers]])
        if len(missing):
            for piece in self.loader.load(self, missing):
                self.keep(piece)
                self.unreadable |= piece.unreadable

    def keep(self, piece: Decoded) -> None:
        """Keep decoded photos at their positions in the list."""
        rows = piece.positions
        self.sizes[rows], self.is_loaded[rows] = piece.sizes, True
        if not self._chunks or self._chunks[-1] is not piece.pixels:
            self._chunks.append(piece.pixels)
            self._starts = None
        self._chunk[rows], self._offset[rows] = len(self._chunks) - 1, piece.offsets

    def content(self, number: int) -> bytes:
        """The photo as an exemplar: its file, or a JPEG of the size in which it is kept. Raises OSError."""
        if not self.loader.reencodes or isinstance(self.items[number], bytes):
            return self.encoded(number)
        if self.is_loaded[number]:
            return jpeg_of(self.pixels(number).cpu().numpy())
        return jpeg_of(self.loader.pixels(self, number))

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


def _in_file(parts: Sequence[Decoded], folder: Path | None) -> Tensor:
    """The pixels of all parts in an unnamed file in `folder`, which is freed with the tensor."""
    with written(folder or Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile(dir=folder) as file:
        for part in parts:
            file.write(part.pixels.numpy().data)
        file.flush()
        # Copy on write: torch asks for memory that could be written to, and nothing here writes.
        return torch.from_numpy(np.memmap(file.name, np.uint8, "c") if file.tell() else np.empty(0, np.uint8))


def owners_of(numbers: NDArray[np.int64], num_processes: int | None = None) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * (num_processes or process_group().size) // NUM_STRATA, dtype=np.int64)
