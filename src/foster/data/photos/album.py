"""Album: photos of many sizes as one stack of images, each cut and resized to one size when it is needed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster import events
from foster.data.photos.crops import can_crop, crops_at, crops_of
from foster.data.photos.darkroom import Darkroom, Developed
from foster.data.photos.encoded import Encoded, PhotoBytes, PhotoFiles
from foster.data.photos.pixels import jpeg_of, pixels_of
from foster.data.photos.strata import NUM_STRATA
from foster.system.crew import crew, gathered


class PhotoStore:
    """Photos that share a list, and the pixels of those that are developed. A photo's number never changes."""

    def __init__(self, photos: Encoded, darkroom: Darkroom, what: str = "the photos") -> None:
        self.photos = photos
        self.darkroom = darkroom
        self.what = what
        self.sizes = np.zeros((len(photos), 2), np.int64)
        self.is_known = np.zeros(len(photos), bool)
        """Whose size is known here; with several processes that is more than those whose pixels are here."""
        self.is_developed = np.zeros(len(photos), bool)
        self._chunk = np.zeros(len(photos), np.int32)
        self._offset = np.zeros(len(photos), np.int64)
        self._chunks: list[Tensor] = []

    @property
    def has_ids(self) -> bool:
        """Whether every photo is known by an id."""
        return len(getattr(self.photos, "ids", ())) == len(self.photos)

    def survey(self, numbers: NDArray[np.int64]) -> None:
        """Learn the sizes of photos that are not known yet. Each process decodes its share, and tells the others."""
        team = crew()
        if team.is_alone:
            self.develop(numbers)
            return
        missing = np.unique(numbers[~self.is_known[numbers]])
        if not len(missing):
            return
        # From the cache nothing is decoded: all may read all of it.
        is_own = owners_of(missing) == team.rank
        self.develop(missing if self.darkroom.cache else missing[is_own])
        shares = [missing[owners_of(missing) == rank] for rank in range(team.size)]
        own = torch.from_numpy(self.sizes[shares[team.rank]])
        for share, sizes in zip(shares, gathered(own, [len(share) for share in shares]), strict=True):
            self.sizes[share], self.is_known[share] = sizes.numpy(), True
        others = missing[(self.sizes[missing].min(1) == 0) & ~is_own]
        if len(others) and not self.darkroom.cache:
            first = self.photos.name(int(others[0]))
            message = f"{len(others)} more photos of {self.what} cannot be read by other processes"
            self.darkroom.follower.listener(events.Warned(f"{message} and are left out, such as '{first}'"))

    def develop(self, numbers: NDArray[np.int64]) -> None:
        """Decode those of the photos whose pixels are not here yet."""
        missing = np.unique(numbers[~self.is_developed[numbers]])
        if not len(missing):
            return
        is_all = len(missing) == len(self.photos)
        for part in self.darkroom.develop(self.photos if is_all else self.photos.select(missing), self.what):
            self.keep(part._replace(positions=missing[part.positions]))

    def keep(self, part: Developed) -> None:
        """Take pixels that were decoded elsewhere, at their positions in the list."""
        rows = part.positions
        self.sizes[rows], self.is_known[rows], self.is_developed[rows] = part.sizes, True, True
        self._chunk[rows], self._offset[rows] = len(self._chunks), part.offsets
        self._chunks.append(part.pixels)

    def content(self, number: int) -> bytes:
        """The photo as it is kept: its file, or once more encoded at the size in which it is used."""
        if not self.darkroom.reencodes or isinstance(self.photos, PhotoBytes):
            return self.photos.content(number)
        if self.is_developed[number]:
            return jpeg_of(self.pixels(number).cpu().numpy())
        return jpeg_of(pixels_of(self.photos.content(number), self.darkroom.short_side))

    def pixels(self, number: int) -> Tensor:
        """A developed photo, uint8 `[height, width, 3]`, where it is kept."""
        height, width = self.sizes[number].tolist()
        start = int(self._offset[number])
        return self._chunks[int(self._chunk[number])][start : start + 3 * height * width].view(height, width, 3)

    def addresses(self, numbers: NDArray[np.int64], device: torch.device) -> NDArray[np.int64] | None:
        """Where in the memory of `device` the photos begin; None where they are kept elsewhere."""
        index = torch.cuda.current_device() if device.index is None else device.index
        if any((chunk.device.type, chunk.device.index) != (device.type, index) for chunk in self._chunks):
            return None
        starts = np.array([chunk.data_ptr() for chunk in self._chunks], np.int64)
        return np.asarray(starts[self._chunk[numbers]] + self._offset[numbers], dtype=np.int64)


class Gathered(NamedTuple):
    """What a device needs to cut some photos: their sizes, and where they are there, or their pixels to be sent."""

    sizes: Tensor
    addresses: Tensor
    pixels: Tensor | None

    def crops(self, boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int], device: torch.device) -> Tensor:
        """uint8 `[n, 3, *out_size]` on `device`."""
        if self.pixels is None:
            addresses, sizes, boxes, is_mirrored = _sent((self.addresses, self.sizes, boxes, is_mirrored), device)
            return crops_at(addresses, sizes, boxes, is_mirrored, out_size)
        pixels = self.pixels.to(device, non_blocking=True)
        if device.type == "cuda" and can_crop():
            addresses = self.addresses + pixels.data_ptr()
            addresses, sizes, boxes, is_mirrored = _sent((addresses, self.sizes, boxes, is_mirrored), device)
            return crops_at(addresses, sizes, boxes, is_mirrored, out_size)
        photos = [
            pixels[start : start + 3 * height * width].view(height, width, 3)
            for start, (height, width) in zip(self.addresses.tolist(), self.sizes.tolist(), strict=True)
        ]
        return crops_of(photos, boxes, is_mirrored, out_size)


class Album:
    """Some photos of one or more stores, in order. Behaves like uint8 images `[N, 3, H, W]` as far as a set needs it:
    it has a length and a shape, and can be indexed, split and joined; no pixel is touched by that."""

    device = torch.device("cpu")
    """Where its indices live; where its pixels live is the darkroom's business."""

    def __init__(self, stores: Sequence[PhotoStore], store_ids: NDArray[np.int16], numbers: NDArray[np.int64]) -> None:
        self._stores = tuple(stores)
        self._store_ids = store_ids
        self._numbers = numbers

    @classmethod
    def of(cls, photos: Encoded, darkroom: Darkroom, what: str = "the photos") -> "Album":
        """All photos of a list, on a store of their own."""
        return cls([PhotoStore(photos, darkroom, what)], np.zeros(len(photos), np.int16), np.arange(len(photos)))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def darkroom(self) -> Darkroom:
        return self._stores[0].darkroom

    @property
    def out_size(self) -> tuple[int, int]:
        return self.darkroom.out_size

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), 3, *self.out_size))

    def __getitem__(self, index: Tensor | slice) -> "Album":
        chosen = index if isinstance(index, slice) else index.cpu().numpy()
        return Album(self._stores, self._store_ids[chosen], self._numbers[chosen])

    def split(self, size: int) -> Iterator["Album"]:
        for first in range(0, max(1, len(self)), size):
            yield self[first : first + size]

    def joined(self, other: "Album") -> "Album":
        """This album's photos, followed by the other's."""
        stores = list(dict.fromkeys((*self._stores, *other._stores)))
        new_ids = np.array([stores.index(store) for store in other._stores], np.int16)
        ids = np.concatenate((self._store_ids, new_ids[other._store_ids]))
        return Album(stores, ids, np.concatenate((self._numbers, other._numbers)))

    def apart(self, what: str) -> "Album":
        """The same photos on a store of their own, whose pixels are gone when nobody needs them any more."""
        (store,) = self._stores
        return Album.of(store.photos.select(self._numbers), store.darkroom, what)

    def developed(self) -> Tensor:
        """Decode what is not decoded yet; returns which of the photos could be read, `[N]` bool."""
        for store, positions in self._by_store():
            store.survey(self._numbers[positions])
        return self.sizes.amin(1) > 0

    def develop_here(self) -> None:
        """Decode what this process needs of it and does not have yet."""
        for store, positions in self._by_store():
            store.develop(self._numbers[positions])

    def homes(self) -> Tensor:
        """Which of `NUM_STRATA` groups each photo belongs to, `[N]`: always the same one."""
        return torch.from_numpy(self._numbers % NUM_STRATA)

    def owners(self) -> Tensor:
        """Which process decodes and keeps each photo, `[N]`."""
        return torch.from_numpy(owners_of(self._numbers))

    @property
    def sizes(self) -> Tensor:
        """Height and width of every photo as it is kept, `[N, 2]` int64; 0 where it could not be read."""
        sizes = np.zeros((len(self), 2), np.int64)
        for store, positions in self._by_store():
            sizes[positions] = store.sizes[self._numbers[positions]]
        return torch.from_numpy(sizes)

    def prepare(self, what: str) -> int:
        """Write the disk cache of the files, all in one list, or what is missing of it. Returns its bytes."""
        (store,) = self._stores
        assert isinstance(store.photos, PhotoFiles)
        return self.darkroom.prepare(store.photos.select(self._numbers), what)

    def contents(self) -> list[bytes]:
        """The encoded photos, as they are kept."""
        return [store.content(number) for store, number in self._places()]

    def ids(self) -> list[str]:
        """The ids of the photos; all of them must have one."""
        places = self._places()
        return [store.photos.ids[number] for store, number in places]  # type: ignore[attr-defined]

    @property
    def nbytes(self) -> int:
        """What the encoded photos take."""
        return sum(map(len, self.contents()))

    def owned(self) -> "Album":
        """The same photos with their encoded bytes in memory: the files may be deleted."""
        ids = self.ids() if all(store.has_ids for store in self._stores) else ()
        return Album.of(PhotoBytes(self.contents(), ids), self.darkroom, "the exemplars")

    def gathered(self, device: torch.device) -> Gathered:
        """What `device` needs of the photos, all of them developed; in memory from which it can copy by itself."""
        sizes, addresses = self.sizes, torch.zeros(len(self), dtype=torch.int64)
        for store, own in self._by_store():
            starts = store.addresses(self._numbers[own], device) if device.type == "cuda" and can_crop() else None
            if starts is None:
                return self._packed(sizes, device)
            addresses[torch.from_numpy(own)] = torch.from_numpy(starts)
        return Gathered(sizes, addresses, None)

    def _packed(self, sizes: Tensor, device: torch.device) -> Gathered:
        ends = (3 * sizes.prod(1)).cumsum(0)
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for (store, number), end in zip(self._places(), ends.tolist(), strict=True):
            photo = store.pixels(number)
            pixels[end - photo.numel() : end] = photo.reshape(-1)
        return Gathered(sizes, ends - 3 * sizes.prod(1), pixels)

    def centre_crops(self, device: torch.device) -> Tensor:
        """The square in the middle of every photo: what a network is tested on, uint8 `[N, 3, H, W]` on `device`."""
        self.develop_here()
        gathered = self.gathered(device)
        boxes = self.darkroom.frames(gathered.sizes)
        return gathered.crops(boxes, torch.zeros(len(self), dtype=torch.int64), self.out_size, device)

    def _places(self) -> list[tuple[PhotoStore, int]]:
        pairs = zip(self._store_ids.tolist(), self._numbers.tolist(), strict=True)
        return [(self._stores[store], number) for store, number in pairs]

    def _by_store(self) -> Iterator[tuple[PhotoStore, NDArray[np.int64]]]:
        """Each store, and where its photos stand here."""
        for number, store in enumerate(self._stores):
            positions = np.flatnonzero(self._store_ids == number)
            if len(positions):
                yield store, positions


def owners_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * crew().size // NUM_STRATA, dtype=np.int64)


def _sent(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Small tables on the device, without waiting for their arrival."""
    return [tensor.contiguous().pin_memory().to(device, non_blocking=True) for tensor in tensors]
