"""Photos of many sizes: decoded once, over all cores, and kept on the GPU, in the host's memory or in a file.

A `PhotoLoader` says how photos become pixels and where those lie (uint8 `[height, width, 3]`, one photo after the
other); a `PhotoStore` is a list of photos with the pixels of those that are decoded.

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
from foster.data.images import free_memory
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
from foster.data.photos.find import Unreadable, item_name
from foster.errors import DataError
from foster.system.files import explained_write_errors, read_limited
from foster.system.memory import main_memory, num_cores
from foster.system.processes import gathered, process_group, stop_together

Place = Literal["auto", "device", "host", "disk"]
CPU = torch.device("cpu")

MAX_UNREADABLE = 100
MAX_UNREADABLE_SHARE = 0.1
NUM_SHOWN = 5

LOADED_AT_ONCE = 512
LOADED_TOGETHER = 16
"""Photos that a thread decodes and packs before it asks for more, so that it seldom waits for Python's lock."""

SHARE_OF_DEVICE = 0.6
"""The share of a device's free memory that photos may take: the network, its gradients and the batches need the
rest."""

SHARE_OF_HOST = 0.7
TYPICAL_SHORT_SIDE = 375
"""The typical shorter side of ImageNet's photos, which is assumed if the size is not known."""

NUM_STRATA = 32
"""The largest number of strata, and so of processes that share photos."""


def refuse_too_many(unreadable: Sequence[Unreadable], num_photos: int, title: str, asked: int | None) -> None:
    """Raise DataError if more photos of `title` are unreadable than the limit that is `asked` for. By default it is
    10 % of the photos, but at least 3 and at most 100.
    """
    usual = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * num_photos)))
    limit = usual if asked is None else asked
    if len(unreadable) > limit:
        if len(unreadable) == num_photos:
            raise none_readable(unreadable, title)
        raise DataError(
            f"stopped at {len(unreadable)} unreadable of {num_photos} photos of {title} (limit {limit}): "
            f"{reasons(unreadable)}; mend or remove them, or raise max_unreadable (of a run: photos.max_unreadable)"
        )


def reasons(unreadable: Sequence[Unreadable]) -> str:
    """The first photos that cannot be read, and why."""
    more = "; ..." if len(unreadable) > NUM_SHOWN else ""
    return "; ".join(f"'{photo.name}': {photo.reason}" for photo in unreadable[:NUM_SHOWN]) + more


def none_readable(unreadable: Sequence[Unreadable], title: str) -> DataError:
    """The error if all photos that were tried are unreadable."""
    first = unreadable[0]
    return DataError(
        f"no image of {title} can be read ({len(unreadable)} tried), such as '{first.name}': {first.reason}"
    )


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
    """How photos are resized for inference; by default a network sees the usual square in the middle. If it is given,
    the id of a photo is that of the resized image, and exemplars are encoded again at the size in which photos are
    kept."""
    follower: Follower = field(default_factory=Follower)

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of what a network sees."""
        return self.resizing.size if self.resizing else (self.image_size, self.image_size)

    def frames(self, sizes: Tensor) -> Tensor:
        """The boxes `[N, 4]` that a network sees in inference, for photos of these `sizes` `[N, 2]`."""
        return whole_boxes(sizes) if self.resizing else centre_boxes(sizes)

    def choose(self, num_bytes: int) -> str:
        """Where photos of so many bytes go. Raises DataError where there is no room."""
        is_gpu = self.device.type == "cuda"
        if self.place != "auto":
            return self.place if self.place != "device" or is_gpu else "host"
        if is_gpu and num_bytes <= SHARE_OF_DEVICE * free_memory(self.device):
            return "device"
        if num_bytes <= SHARE_OF_HOST * _available_memory():
            return "host"
        if self.cache is not None:
            return "disk"
        raise DataError(
            f"the photos take {num_bytes / 2**30:.1f} GiB, more than there is room for; name a folder on disk for them "
            "(engine.photo_cache=FOLDER), or choose a smaller photos.short_side"
        )


def typical_photo_bytes(short_side: int) -> int:
    """The bytes of a decoded photo with the aspect 4:3 and this shorter side."""
    side = short_side or TYPICAL_SHORT_SIDE
    return 3 * side * side * 4 // 3


def _available_memory() -> int:
    """The available bytes of the host's memory, at most those of the container."""
    available = main_memory()
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = min(available, int(line.split()[1]) * 1024)
    return available


class Decoded(NamedTuple):
    """Some decoded photos: their numbers `[n]`, sizes `[n, 2]` (height and width; 0 if unreadable), offsets in the
    pixels `[n]`, the pixels of all in one tensor, and the reasons why some cannot be read."""

    numbers: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pixels: Tensor
    unreadable: Mapping[int, str]


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
        """The addresses of the chunks, if one device holds them all; None until they are needed."""

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
        team = process_group()
        if team.is_alone:
            self.load(numbers)
            return
        missing = np.unique(numbers[~self.is_known[numbers]])
        if not len(missing):
            return
        owners = owners_of(missing, team.size)
        shares = [missing[owners == rank] for rank in range(team.size)]
        self.load(shares[team.rank])
        stop_together(self.loader.follower.stop)
        found = torch.from_numpy(self.sizes[shares[team.rank]])
        for share, sizes in zip(shares, gathered(found, [len(share) for share in shares]), strict=True):
            self.sizes[share], self.is_known[share] = sizes.numpy(), True
        others = missing[(self.sizes[missing].min(1) == 0) & (owners != team.rank)]
        if len(others):
            count = f"{len(others)} more photos of {self.title}"
            first = self.name(int(others[0]))
            self.loader.follower.warn(f"{count} cannot be read by other processes and are left out, such as '{first}'")

    def load(self, numbers: NDArray[np.int64]) -> None:
        """Decode the photos whose pixels are not here yet. Those that cannot be read have no pixels; a warning counts
        them. Raises DataError where they are too many."""
        missing = np.unique(numbers[~self.is_loaded[numbers]])
        if not len(missing):
            return
        began, num_done, num_bytes, place = time.monotonic(), 0, 0, ""
        loader, follower, unreadable = self.loader, self.loader.follower, list[Unreadable]()
        for pieces in self._decoded(missing):
            for piece in pieces:
                self.unreadable |= piece.unreadable
                unreadable += [Unreadable(self.name(number), reason) for number, reason in piece.unreadable.items()]
                num_done += len(piece.numbers)
                num_bytes += piece.pixels.nbytes
            refuse_too_many(unreadable, len(missing), self.title, loader.max_unreadable)
            place = place or loader.choose(num_bytes * len(missing) // num_done)
            for piece in pieces if place == "host" else self._together(pieces, place):
                self.keep(piece)
            follower.listener(events.Decoding(self.title, num_done, len(missing)))
        if len(unreadable) == len(missing):
            raise none_readable(unreadable, self.title)
        if unreadable:
            first = unreadable[0]
            count = f"{len(unreadable)} of {len(missing):,} photos of {self.title}"
            follower.warn(f"{count} cannot be read and are left out, such as '{first.name}': {first.reason}")
        seconds = time.monotonic() - began
        follower.listener(events.PhotosDecoded(self.title, len(missing), num_bytes, place, seconds))

    def _decoded(self, numbers: NDArray[np.int64]) -> Iterator[Sequence[Decoded]]:
        """The photos over all cores, some at a time; while some are put where they are kept, the next are decoded."""
        begun: deque[list[Future[Decoded]]] = deque()
        with quiet_pillow(), ThreadPoolExecutor(num_cores()) as pool:
            for first in range(0, len(numbers), LOADED_AT_ONCE):
                last = min(first + LOADED_AT_ONCE, len(numbers))
                parts = (numbers[k : min(k + LOADED_TOGETHER, last)] for k in range(first, last, LOADED_TOGETHER))
                begun.append([pool.submit(self._decoded_part, part) for part in parts])
                if len(begun) > 1:
                    yield [piece.result() for piece in begun.popleft()]
            yield [piece.result() for piece in begun.popleft()]

    def _decoded_part(self, numbers: NDArray[np.int64]) -> Decoded:
        """Some photos, decoded one after the other by the calling thread."""
        photos, unreadable = list[NDArray[np.uint8]](), dict[int, str]()
        for number in numbers.tolist():
            if process_group().is_alone:  # of several, another one may wait for this one's share
                self.loader.follower.stop.raise_if_set()
            try:
                photos.append(self._pixels_of(number))
                continue
            except ImageError as error:
                unreadable[number] = str(error)
            except OSError as error:
                unreadable[number] = error.strerror or "it cannot be read"
            photos.append(np.empty((0, 0, 3), np.uint8))
        sizes = np.array([photo.shape[:2] for photo in photos], np.int64)
        lengths = 3 * sizes.prod(1)
        pixels = torch.from_numpy(np.concatenate([photo.ravel() for photo in photos]))
        return Decoded(numbers, sizes, lengths.cumsum() - lengths, pixels, unreadable)

    def _pixels_of(self, number: int) -> NDArray[np.uint8]:
        """One photo, decoded, `[height, width, 3]` at the size in which it is kept. Raises OSError and ImageError."""
        resizing, short_side = self.loader.resizing, self.loader.short_side
        if resizing is None or self.ids[number]:
            return file_pixels(self.encoded(number), short_side)
        picture = decode_photo(self.items[number], max(resizing.size))
        self.ids[number] = image_id(resizing(picture))
        return shrunk(picture, short_side)

    def _together(self, pieces: Sequence[Decoded], place: str) -> Iterator[Decoded]:
        """The pieces with their pixels in one tensor, on the device or on disk."""
        room = (
            _in_file(pieces, self.loader.cache)
            if place == "disk"
            else torch.cat([piece.pixels for piece in pieces]).to(self.loader.device)
        )
        start = 0
        for piece in pieces:
            yield piece._replace(offsets=piece.offsets + start, pixels=room)
            start += len(piece.pixels)

    def keep(self, piece: Decoded) -> None:
        rows = piece.numbers
        self.sizes[rows], self.is_loaded[rows] = piece.sizes, True
        if not self._chunks or self._chunks[-1] is not piece.pixels:
            self._chunks.append(piece.pixels)
            self._starts = None
        self._chunk[rows], self._offset[rows] = len(self._chunks) - 1, piece.offsets

    def content(self, number: int) -> bytes:
        """The photo as an exemplar: its file or, of a photo that is decoded, a JPEG of the size in which it is kept.
        Raises OSError."""
        if self.loader.resizing is None or isinstance(self.items[number], bytes):
            return self.encoded(number)
        return jpeg_of(self.pixels(number).cpu().numpy())

    def pixels(self, number: int) -> Tensor:
        """A decoded photo, uint8 `[height, width, 3]`, where it is kept."""
        height, width = self.sizes[number].tolist()
        start = int(self._offset[number])
        return self._chunks[int(self._chunk[number])][start : start + 3 * height * width].view(height, width, 3)

    def addresses(self, numbers: NDArray[np.int64], device: torch.device) -> NDArray[np.int64] | None:
        """The addresses of the photos in the memory of `device`; None if they are kept elsewhere."""
        index = torch.cuda.current_device() if device.index is None else device.index
        if self._starts is None:
            if any((chunk.device.type, chunk.device.index) != (device.type, index) for chunk in self._chunks):
                return None
            self._starts = np.array([chunk.data_ptr() for chunk in self._chunks], np.int64)
        return np.asarray(self._starts[self._chunk[numbers]] + self._offset[numbers], dtype=np.int64)


def _in_file(parts: Sequence[Decoded], folder: Path | None) -> Tensor:
    """The pixels of all parts in an unnamed file in `folder`, which is freed with the tensor."""
    with explained_write_errors(folder or Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile(dir=folder) as file:
        for part in parts:
            file.write(part.pixels.numpy().data)
        file.flush()
        # Copy on write: torch asks for memory that could be written to, and nothing here writes.
        return torch.from_numpy(np.memmap(file.name, np.uint8, "c") if file.tell() else np.empty(0, np.uint8))


def owners_of(numbers: NDArray[np.int64], num_processes: int) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * num_processes // NUM_STRATA, dtype=np.int64)
