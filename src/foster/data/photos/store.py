"""Photos of many sizes: decoded once, kept, and given to a network.

A `PhotoLoader` decodes each photo once, over all cores. Its pixels (uint8 `[height, width, 3]`, one photo after the
other) lie on the GPU, in the host's memory or in a file; a `PhotoStore` knows where. A `PhotoStack` is some photos of
one or more stores, as a stack of images: a network sees crops of them, cut and resized on the device.

Several processes share the photos of an experiment: a photo's number decides which process decodes it. Batches have
equal parts of 32 strata of photos, and each process has some strata: so the batches do not depend on the number of
processes.

A learner reads small images as one tensor of the network's size. It keeps photos a seventh larger than the network sees
them, so that crops stay sharp.
"""

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster import events
from foster.data.augmentation.pipeline import PhotoChanges
from foster.data.download import Follower
from foster.data.images import Gather, Stack, TensorStack, free_memory
from foster.data.memory import ExemplarMemory
from foster.data.photos.crops import centre_boxes, crops_at, crops_of, whole_boxes
from foster.data.photos.decode import (
    DECODED_AT_ONCE,
    MAX_FILE_BYTES,
    ImageError,
    ImageLike,
    Resizing,
    decode,
    decode_photo,
    decoded,
    file_pixels,
    image_id,
    jpeg_of,
    png_of,
    quiet_pillow,
    shrunk,
    typical_side,
    upright_size,
)
from foster.data.photos.find import Photos, Unreadable, item_name
from foster.errors import DataError, SettingsError
from foster.kernels.operations import can_crop
from foster.settings.augmentation import Augmentation
from foster.settings.learner_defaults import SMALL_SIDE
from foster.system.files import read_limited, written
from foster.system.memory import main_memory, num_cores
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
"""The share of a device's free memory that photos may take: the network, its gradients and the batches need the
rest."""

SHARE_OF_HOST = 0.7
TYPICAL_SHORT_SIDE = 375
"""The typical shorter side of ImageNet's photos, which is assumed if the size is not known."""

NUM_STRATA = 32
"""The largest number of strata, and so of processes that share photos."""

COPIES_OF_IMAGES, COPIES_OF_PHOTOS = 5, 2
"""The peak memory of a `learn`, in copies of its images. Small images are copied as read, after the known and held-out
ones are left out, joined with the exemplars, shuffled, and augmented; photos are kept larger, but once."""

FEWEST_IN_A_STRATUM = 8
JPEG = b"\xff\xd8\xff"

NUM_MEASURED = 200
"""The number of photos from whose sizes a learner chooses its image size."""


def refuse_too_many(unreadable: Sequence[Unreadable], num_photos: int, title: str, asked: int | None) -> None:
    """Raise DataError if more photos of `title` are unreadable than the limit that is `asked` for. By default it is
    10 % of the photos, but at least 3 and at most 100.
    """
    usual = max(3, min(MAX_UNREADABLE, int(MAX_UNREADABLE_SHARE * num_photos)))
    limit = usual if asked is None else asked
    if len(unreadable) > limit:
        raise DataError(
            f"stopped at {len(unreadable)} unreadable of {num_photos} photos of {title} (limit {limit}): "
            f"{listed(unreadable)}; mend or remove them, or raise max_unreadable (of a run: photos.max_unreadable)"
        )


def listed(unreadable: Sequence[Unreadable]) -> str:
    """The first photos that cannot be read, and why."""
    more = "; ..." if len(unreadable) > NUM_SHOWN else ""
    return "; ".join(f"'{photo.name}': {photo.reason}" for photo in unreadable[:NUM_SHOWN]) + more


class Decoded(NamedTuple):
    """Some decoded photos: their positions `[n]`, sizes `[n, 2]` (height and width; 0 if unreadable), offsets in the
    pixels `[n]`, the pixels of all in one tensor, and the reasons why some cannot be read."""

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

    def load(self, store: "PhotoStore", positions: NDArray[np.int64]) -> Iterator[Decoded]:
        """The photos at these positions, some at a time, in the place where they are kept. Those that cannot be read
        have no pixels; a warning counts them. Raises DataError where they are too many."""
        began, num_done, num_bytes, title = time.monotonic(), 0, 0, store.title
        unreadable: list[Unreadable] = []
        place = ""
        firsts = range(0, len(positions), LOADED_AT_ONCE)
        for parts in self._decoded(store, (positions[first : first + LOADED_AT_ONCE] for first in firsts)):
            self.follower.stop.raise_if_set()
            reasons = (one for part in parts for one in part.unreadable.items())
            unreadable += [Unreadable(store.name(position), reason) for position, reason in reasons]
            refuse_too_many(unreadable, len(positions), title, self.max_unreadable)
            num_done += sum(len(part.positions) for part in parts)
            num_bytes += sum(part.pixels.nbytes for part in parts)
            if not place:
                place = self.choose(num_bytes * len(positions) // max(1, num_done))
            yield from self._kept(parts, place)
            self.follower.listener(events.Decoding(title, num_done, len(positions)))
        if len(positions) and len(unreadable) == len(positions):
            raise none_readable(unreadable, title)
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


def _available_memory() -> float:
    """The available bytes of the host's memory; infinite if they are not known."""
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
        found = torch.from_numpy(self.sizes[shares[team.rank]])
        for share, sizes in zip(shares, gathered(found, [len(share) for share in shares]), strict=True):
            self.sizes[share], self.is_known[share] = sizes.numpy(), True
        others = missing[(self.sizes[missing].min(1) == 0) & (owners != team.rank)]
        if len(others):
            count = f"{len(others)} more photos of {self.title}"
            first = self.name(int(others[0]))
            self.loader.follower.warn(f"{count} cannot be read by other processes and are left out, such as '{first}'")

    def load(self, numbers: NDArray[np.int64]) -> None:
        """Decode the photos whose pixels are not here yet."""
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
        if self.loader.resizing is None or isinstance(self.items[number], bytes):
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
        """The addresses of the photos in the memory of `device`; None if they are kept elsewhere."""
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


def owners_of(numbers: NDArray[np.int64], num_processes: int) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * num_processes // NUM_STRATA, dtype=np.int64)


class _Crops(NamedTuple):
    """The data with which a device crops some photos: their sizes, and where each begins: in the memory of the device
    or, for photos that `are_sent`, in `pixels`, which are sent to it."""

    sizes: Tensor
    starts: Tensor
    are_sent: Tensor
    pixels: Tensor

    def cut(self, boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int], device: torch.device) -> Tensor:
        """uint8 `[n, 3, *out_size]` on `device`."""
        pixels = self.pixels.to(device, non_blocking=True) if len(self.pixels) else self.pixels
        if device.type == "cuda" and can_crop():
            addresses = self.starts + pixels.data_ptr() * self.are_sent
            addresses, sizes, boxes, is_mirrored = _sent((addresses, self.sizes, boxes, is_mirrored), device)
            return crops_at(addresses, sizes, boxes, is_mirrored, out_size)
        photos = [
            pixels[start : start + 3 * height * width].view(height, width, 3)
            for start, (height, width) in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]
        return crops_of(photos, boxes, is_mirrored, out_size)


class PhotoStack(Stack):
    """Some photos of one or more stores, in order. Selecting and joining do not copy pixels."""

    def __init__(self, stores: Sequence[PhotoStore], store_ids: NDArray[np.int16], numbers: NDArray[np.int64]) -> None:
        self.loader = stores[0].loader
        self.stores = tuple(stores)
        self._store_ids = store_ids
        self._numbers = numbers

    @classmethod
    def of(
        cls, items: Iterable[ImageLike], loader: PhotoLoader, title: str = "the photos", ids: Sequence[str] = ()
    ) -> "PhotoStack":
        """The photos in a new store, with their earlier `ids`, if they had any."""
        store = PhotoStore(items, loader, title, ids)
        return cls([store], np.zeros(len(store), np.int16), np.arange(len(store)))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), 3, *self.loader.out_size))

    @property
    def device(self) -> torch.device:
        return CPU

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.files()))

    @property
    def tensor(self) -> Tensor:
        raise ValueError("photos of many sizes are not one tensor of images")

    @property
    def sizes(self) -> Tensor:
        """Height and width of every photo as it is kept, `[N, 2]` int64; 0 where it could not be read."""
        sizes = np.zeros((len(self), 2), np.int64)
        for store, positions in self._by_store():
            sizes[positions] = store.sizes[self._numbers[positions]]
        return torch.from_numpy(sizes)

    def __getitem__(self, index: Tensor | slice) -> "PhotoStack":
        chosen = index if isinstance(index, slice) else index.cpu().numpy()
        return PhotoStack(self.stores, self._store_ids[chosen], self._numbers[chosen])

    def followed_by(self, others: Sequence[Stack]) -> "PhotoStack":
        stacks = [self, *cast("Sequence[PhotoStack]", others)]
        stores = list(dict.fromkeys(store for stack in stacks for store in stack.stores))
        ids = [np.array([stores.index(store) for store in stack.stores], np.int16) for stack in stacks]
        store_ids = np.concatenate([new[stack._store_ids] for new, stack in zip(ids, stacks, strict=True)])
        return PhotoStack(stores, store_ids, np.concatenate([stack._numbers for stack in stacks]))

    def to(self, device: torch.device | str) -> "PhotoStack":
        return self

    def on_device(self, device: torch.device) -> Tensor:
        self.load()
        crops = self.crops(device)
        boxes = self.loader.frames(crops.sizes)
        return crops.cut(boxes, torch.zeros(len(self), dtype=torch.int64), self.loader.out_size, device)

    def ids(self) -> list[str]:
        ids = [store.ids[number] for store, number in self._stored()]
        if all(ids):
            return ids
        return [image_id(image) for part in self.split(DECODED_AT_ONCE) for image in part.on_device(CPU)]

    def load(self) -> None:
        for store, positions in self._by_store():
            store.load(self._numbers[positions])

    def readable(self) -> Tensor:
        for store, positions in self._by_store():
            store.survey(self._numbers[positions])
        return self.sizes.amin(1) > 0

    def for_task(self, title: str) -> "PhotoStack":
        (store,) = self.stores
        numbers = self._numbers.tolist()
        items, ids = [store.items[k] for k in numbers], [store.ids[k] for k in numbers]
        return PhotoStack.of(items, store.loader, title, ids)

    def owned(self) -> "PhotoStack":
        ids = [store.ids[number] for store, number in self._stored()]
        return PhotoStack.of(self.files(), self.loader, "the exemplars", ids)

    def files(self) -> list[bytes]:
        return [store.content(number) for store, number in self._stored()]

    def state(self) -> dict[str, Tensor]:
        """`contents`, the encoded files one after the other, and `lengths`, their bytes."""
        files = self.files()
        whole = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8) if files else torch.empty(0).byte()
        return {"contents": whole, "lengths": torch.tensor([len(file) for file in files], dtype=torch.int64)}

    def restored(self, state: Mapping[str, Tensor]) -> Stack:
        if "contents" not in state:  # of a memory without images
            return TensorStack(state["images"])
        contents = state["contents"]
        if contents.dtype != torch.uint8:
            raise ValueError(f"{contents.dtype} of shape {tuple(contents.shape)}")
        files = [part.numpy().tobytes() for part in contents.split(state["lengths"].tolist())]
        return PhotoStack.of(files, self.loader, "the exemplars")

    def owners(self, num_processes: int) -> Tensor:
        return torch.from_numpy(owners_of(self._numbers, num_processes))

    def strata(self, batch_size: int, num_processes: int) -> list[Tensor]:
        most = num_strata(FEWEST_IN_A_STRATUM * NUM_STRATA, batch_size)
        if most % num_processes:
            raise SettingsError(
                f"{num_processes} processes cannot share photos in batches of {batch_size} equally; "
                f"start as many as divide {most}"
            )
        self.readable()
        return strata(torch.from_numpy(self._numbers % NUM_STRATA), num_strata(len(self), batch_size))

    def epoch(self, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> Gather:
        """The photos of one epoch. Each is cropped, resized and mirrored on the device, then augmented like any
        image."""
        out_size = self.loader.out_size
        shape = torch.Size((len(order), 3, *out_size))
        changes = PhotoChanges(augmentation, self.sizes[order], shape, random, self.loader.frames)

        def gather(part: slice, device: torch.device) -> Callable[[], Tensor]:
            crops = self[order[part]].crops(device)
            boxes, is_mirrored = changes.boxes[part], changes.is_mirrored[part]
            return lambda: changes.done_to(crops.cut(boxes, is_mirrored, out_size, device), part)

        return gather

    def is_resident(self, device: torch.device, asked: str) -> bool:
        return False  # the loader keeps pixels on the device

    def crops(self, device: torch.device) -> _Crops:
        """The data with which `device` crops the photos, which must be decoded; on a GPU in pinned memory."""
        sizes, are_sent = self.sizes, torch.ones(len(self), dtype=torch.bool)
        starts = torch.zeros(len(self), dtype=torch.int64)
        for store, positions in self._by_store() if device.type == "cuda" and can_crop() else ():
            addresses = store.addresses(self._numbers[positions], device)
            if addresses is not None:
                starts[positions], are_sent[positions] = torch.from_numpy(addresses), False
        lengths = 3 * sizes.prod(1) * are_sent
        ends = lengths.cumsum(0)
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for (store, number), end, length in zip(self._stored(), ends.tolist(), lengths.tolist(), strict=True):
            if length:
                pixels[end - length : end] = store.pixels(number).reshape(-1)
        starts = torch.where(are_sent, ends - lengths, starts)
        return _Crops(sizes, starts, are_sent, pixels)

    def _stored(self) -> list[tuple[PhotoStore, int]]:
        pairs = zip(self._store_ids.tolist(), self._numbers.tolist(), strict=True)
        return [(self.stores[store], number) for store, number in pairs]

    def _by_store(self) -> Iterator[tuple[PhotoStore, NDArray[np.int64]]]:
        """Each store with the positions of its photos in this stack."""
        for number, store in enumerate(self.stores):
            positions = np.flatnonzero(self._store_ids == number)
            if len(positions):
                yield store, positions


def _sent(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copies of small tensors on the device, sent without waiting."""
    return [tensor.contiguous().pin_memory().to(device, non_blocking=True) for tensor in tensors]


def num_strata(num_photos: int, batch_size: int) -> int:
    """The number of strata of photos: a power of two that divides the batch, with at least eight photos in each."""
    count = NUM_STRATA
    while count > 1 and (batch_size % count or num_photos < FEWEST_IN_A_STRATUM * count):
        count //= 2
    return count


def strata(homes: Tensor, count: int) -> list[Tensor]:
    """Positions in `count` groups of the same size, or one more. A photo is in the group of its number in `homes`
    `[N]`, which is below `NUM_STRATA`, unless that group is full."""
    size = len(homes) // count
    at_home = [(homes * count // NUM_STRATA == group).nonzero().squeeze(1) for group in range(count)]
    over = torch.cat([positions[size:] for positions in at_home])
    groups = []
    for positions in at_home:
        short = max(0, size - len(positions))
        groups.append(torch.cat((positions[:size], over[:short])))
        over = over[short:]
    return [torch.cat((positions, over[k : k + 1])) for k, positions in enumerate(groups)]


@dataclass(frozen=True, eq=False)
class ReadPhotos:
    """The images that could be read, with a class name each, and those that could not."""

    stack: Stack
    positions: tuple[int, ...]
    """The positions of the readable images among all photos."""
    labels: tuple[str, ...]
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
        kept += batch.positions
        images += [image[None] for image in batch.results]
    return _read(TensorStack(torch.cat(images)), kept, photos, unreadable)


def read_for_training(photos: Photos, resizing: Resizing, loader: PhotoLoader) -> ReadPhotos:
    """All photos for a training. Small images are read at one size; larger photos are kept by `loader` a seventh larger
    than the network sees them, and each gets the id of what the network sees."""
    if not keeps_photos(resizing):
        return read_photos(photos, resizing, loader.max_unreadable)
    if loader.place != "disk":
        check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    stack = PhotoStack.of(photos.items, loader, photos.title)
    is_readable = stack.readable()
    (store,) = stack.stores
    unreadable = photos.unreadable(dict(sorted(store.unreadable.items())))
    return _read(stack[is_readable], is_readable.nonzero()[:, 0].tolist(), photos, unreadable)


def _read(stack: Stack, kept: Sequence[int], photos: Photos, unreadable: list[Unreadable]) -> ReadPhotos:
    if not kept:
        raise none_readable(unreadable, photos.title)
    return ReadPhotos(stack, tuple(kept), tuple(photos.labels[k] for k in kept), tuple(unreadable))


def none_readable(unreadable: Sequence[Unreadable], title: str) -> DataError:
    """The error if all photos that were tried are unreadable."""
    return DataError(f"no image of {title} can be read ({len(unreadable)} tried): {listed(unreadable)}")


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
    return PhotoLoader(side, kept, device, place, cache, max_unreadable, resizing=resizing)


def memory_of_files(files: Sequence[Sequence[tuple[str, bytes]]], resizing: Resizing) -> ExemplarMemory:
    """The images that a learner kept of each class as files (`Stack.files`), by their ids.

    Raises DataError with the id of one that cannot be read or has another size; a large image is not decoded.
    """
    check_room(sum(map(len, files)), resizing, num_copies=1)
    memory = ExemplarMemory()
    for class_id, kept in enumerate(files):
        memory.remember(class_id, _stack_of_files(kept, resizing))
    return memory


def _stack_of_files(files: Sequence[tuple[str, bytes]], resizing: Resizing) -> Stack:
    ids, contents = [photo_id for photo_id, _ in files], [content for _, content in files]
    for photo_id, content in files:
        try:
            width, height = upright_size(content)
        except ImageError as error:
            raise DataError(f"image {photo_id} cannot be read: {error}") from None
        is_photo = keeps_photos(resizing) and content.startswith(JPEG)
        if is_photo and min(width, height) <= learner_loader(resizing).short_side:
            continue
        if (height, width) != resizing.size:
            raise DataError(f"image {photo_id} is not {resizing.width} x {resizing.height}")
    if keeps_photos(resizing):
        stack = PhotoStack.of(contents, learner_loader(resizing), "the exemplars", ids)
        is_readable = stack.readable()
        if not bool(is_readable.all()):
            raise DataError(f"image {ids[int((~is_readable).nonzero()[0])]} cannot be read")
        return stack
    images = [torch.empty(0, 3, *resizing.size, dtype=torch.uint8)]
    for batch in decoded(contents, resizing):
        for position, reason in batch.unreadable.items():
            raise DataError(f"image {ids[position]} cannot be read: {reason}")
        images.append(torch.stack(batch.results))
    return TensorStack(torch.cat(images))
