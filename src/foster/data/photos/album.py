"""Album: photos of many sizes as one stack of images, each cut and resized to one size when it is needed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.photos.crops import crops_at, crops_of
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.encoded import Encoded, PhotoBytes, PhotoFiles
from foster.data.photos.store import NUM_STRATA, PhotoStore, owners_of
from foster.kernels.operations import can_crop


class Gathered(NamedTuple):
    """What a device needs to cut some photos: their sizes and where they begin, in its memory or, of those that
    `are_sent`, in the `pixels` that travel there."""

    sizes: Tensor
    starts: Tensor
    are_sent: Tensor
    pixels: Tensor

    def crops(self, boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int], device: torch.device) -> Tensor:
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

    def expect(self) -> None:
        """Begin to decode photos that `developed` will be asked for, beside whatever else is done until then."""
        for store, positions in self._by_store():
            store.expect(self._numbers[positions])

    def dismiss(self) -> None:
        """They are not wanted any more."""
        for store in self._stores:
            store.dismiss()

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
        return [store.content(number) for store, number in self._stored()]

    @property
    def has_ids(self) -> bool:
        """Whether every photo is known by an id."""
        return all(store.has_ids for store in self._stores)

    def ids(self) -> list[str]:
        """The ids of the photos; all of them must have one."""
        return [store.photos.ids[number] for store, number in self._stored()]

    @property
    def nbytes(self) -> int:
        """What the encoded photos take."""
        return sum(map(len, self.contents()))

    def owned(self) -> "Album":
        """The same photos with their encoded bytes in memory: the files may be deleted."""
        ids = self.ids() if self.has_ids else ()
        return Album.of(PhotoBytes(self.contents(), ids), self.darkroom, "the exemplars")

    def gathered(self, device: torch.device) -> Gathered:
        """What `device` needs of the photos, all of them developed; in memory from which it can copy by itself."""
        sizes, are_sent = self.sizes, torch.ones(len(self), dtype=torch.bool)
        starts = torch.zeros(len(self), dtype=torch.int64)
        for store, own in self._by_store() if device.type == "cuda" and can_crop() else ():
            addresses = store.addresses(self._numbers[own], device)
            if addresses is not None:
                starts[own], are_sent[own] = torch.from_numpy(addresses), False
        lengths = 3 * sizes.prod(1) * are_sent
        ends = lengths.cumsum(0)
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for (store, number), end, length in zip(self._stored(), ends.tolist(), lengths.tolist(), strict=True):
            if length:
                pixels[end - length : end] = store.pixels(number).reshape(-1)
        starts = torch.where(are_sent, ends - lengths, starts)
        return Gathered(sizes, starts, are_sent, pixels)

    def centre_crops(self, device: torch.device) -> Tensor:
        """The square in the middle of every photo: what a network is tested on, uint8 `[N, 3, H, W]` on `device`."""
        self.develop_here()
        gathered = self.gathered(device)
        boxes = self.darkroom.frames(gathered.sizes)
        return gathered.crops(boxes, torch.zeros(len(self), dtype=torch.int64), self.out_size, device)

    def _stored(self) -> list[tuple[PhotoStore, int]]:
        pairs = zip(self._store_ids.tolist(), self._numbers.tolist(), strict=True)
        return [(self._stores[store], number) for store, number in pairs]

    def _by_store(self) -> Iterator[tuple[PhotoStore, NDArray[np.int64]]]:
        """Each store, and where its photos stand here."""
        for number, store in enumerate(self._stores):
            positions = np.flatnonzero(self._store_ids == number)
            if len(positions):
                yield store, positions


def _sent(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Small tables on the device, without waiting for their arrival."""
    return [tensor.contiguous().pin_memory().to(device, non_blocking=True) for tensor in tensors]
