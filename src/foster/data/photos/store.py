"""PhotoStore: photos that share a list, and the pixels of those that are decoded, wherever they are kept.

Strata are groups of photos of which each process has equally many, so that the batches do not depend on how many
processes there are.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.photos.cache import Strip
from foster.data.photos.darkroom import Ahead, Darkroom
from foster.data.photos.encoded import Encoded, PhotoBytes
from foster.data.photos.pixels import ID_LENGTH, jpeg_of
from foster.system.crew import crew, gathered

NUM_STRATA = 32
"""So many groups there are at most, and so many processes may share the photos."""

FEWEST_IN_A_STRATUM = 8


class PhotoStore:
    """Photos that share a list, and the pixels of those that are developed. A photo's number never changes."""

    def __init__(self, photos: Encoded, darkroom: Darkroom, what: str = "the photos") -> None:
        self.photos = photos
        self.darkroom = darkroom
        self.what = what
        self.sizes = np.zeros((len(photos), 2), np.int64)
        self.is_known = np.zeros(len(photos), bool)
        """Whose size every process knows, and knows that all others do: the same in all of them at any time."""
        self.is_developed = np.zeros(len(photos), bool)
        self._chunk = np.zeros(len(photos), np.int32)
        self._offset = np.zeros(len(photos), np.int64)
        self._chunks: list[Tensor] = []
        self._starts: NDArray[np.int64] | None = None
        """Where the chunks begin in the memory of the device that holds them all, once that was asked for."""
        self._coming: tuple[NDArray[np.int64], Ahead] | None = None
        """Photos that are decoded already, or are being so, before they are developed."""

    @property
    def has_ids(self) -> bool:
        """Whether every photo is known by an id."""
        return len(self.photos.ids) == len(self.photos)

    def survey(self, numbers: NDArray[np.int64]) -> None:
        """Learn the sizes of photos that are not known yet. Each process decodes its share, and tells the others."""
        if crew().is_alone:
            self.develop(numbers)
            return
        missing = np.unique(numbers[~self.is_known[numbers]])
        if not len(missing):
            return
        # From the cache nothing is decoded: all may read all of it.
        is_own = owners_of(missing) == crew().rank
        self.develop(missing if self.darkroom.cache else missing[is_own])
        self.share(missing)
        others = missing[(self.sizes[missing].min(1) == 0) & ~is_own]
        if len(others) and not self.darkroom.cache:
            first = self.photos.name(int(others[0]))
            message = f"{len(others)} more photos of {self.what} cannot be read by other processes"
            self.darkroom.follower.warn(f"{message} and are left out, such as '{first}'")

    def share(self, numbers: NDArray[np.int64]) -> None:
        """Tell the other processes the sizes and ids of this one's photos among these, and hear theirs."""
        shares = [numbers[owners_of(numbers) == rank] for rank in range(crew().size)]
        own, ids = shares[crew().rank], self.photos.ids
        texts = np.array([ids[k] for k in own.tolist()] if ids else [b""] * len(own), f"S{ID_LENGTH}")
        told = np.concatenate((self.sizes[own], texts.view(np.uint8).reshape(len(own), ID_LENGTH)), axis=1)
        counts = [len(share) for share in shares]
        for share, heard in zip(shares, gathered(torch.from_numpy(told), counts), strict=True):
            self.sizes[share], self.is_known[share] = heard[:, :2].numpy(), True
            for number, text in zip(share.tolist(), heard[:, 2:].tolist(), strict=True) if ids else ():
                ids[number] = bytes(text).rstrip(b"\0").decode()

    def expect(self, numbers: NDArray[np.int64]) -> None:
        """Begin to decode, beside whatever else is done, what `survey` of these photos will ask this process for."""
        own = np.unique(numbers[owners_of(numbers) == crew().rank])
        coming = self.darkroom.ahead(self._listed(own)) if len(own) and self._coming is None else None
        if coming is not None:
            self._coming = own, coming

    def dismiss(self) -> None:
        """What is expected is not wanted any more."""
        if self._coming is not None:
            self._coming[1].cancel()
            self._coming = None

    def develop(self, numbers: NDArray[np.int64]) -> None:
        """Decode those of the photos whose pixels are not here yet."""
        missing = np.unique(numbers[~self.is_developed[numbers]])
        if not len(missing):
            return
        expected, coming = self._coming or (missing[:0], None)
        if not np.array_equal(expected, missing):
            coming = None
        for part in self.darkroom.develop(self._listed(missing), self.what, coming):
            self.keep(part._replace(positions=missing[part.positions]))
        self.dismiss()

    def _listed(self, numbers: NDArray[np.int64]) -> Encoded:
        return self.photos if len(numbers) == len(self.photos) else self.photos.select(numbers)

    def keep(self, part: Strip) -> None:
        """Take pixels that were decoded elsewhere, at their positions in the list."""
        rows = part.positions
        self.sizes[rows], self.is_developed[rows] = part.sizes, True
        if not self._chunks or self._chunks[-1] is not part.pixels:
            self._chunks.append(part.pixels)
            self._starts = None
        self._chunk[rows], self._offset[rows] = len(self._chunks) - 1, part.offsets

    def content(self, number: int) -> bytes:
        """The photo as it is kept: its file, or once more encoded at the size in which it is used."""
        if not self.darkroom.reencodes or isinstance(self.photos, PhotoBytes):
            return self.photos.content(number)
        if self.is_developed[number]:
            return jpeg_of(self.pixels(number).cpu().numpy())
        return jpeg_of(self.photos.pixels(number, self.darkroom.short_side))

    def pixels(self, number: int) -> Tensor:
        """A developed photo, uint8 `[height, width, 3]`, where it is kept."""
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


def num_strata(num_photos: int, batch_size: int) -> int:
    """Into how many strata photos are divided: a power of two that divides the batch, of eight photos or more each."""
    count = NUM_STRATA
    while count > 1 and (batch_size % count or num_photos < FEWEST_IN_A_STRATUM * count):
        count //= 2
    return count


def most_strata(batch_size: int) -> int:
    """Into how many of them photos are divided at most, however many there are."""
    return num_strata(FEWEST_IN_A_STRATUM * NUM_STRATA, batch_size)


def strata(homes: Tensor, count: int) -> list[Tensor]:
    """Positions in `count` groups of equal size, one more in some: each in the group of its home, `[N]` below
    `NUM_STRATA`, unless that is full."""
    size = len(homes) // count
    own = [(homes * count // NUM_STRATA == group).nonzero().squeeze(1) for group in range(count)]
    over = torch.cat([positions[size:] for positions in own])
    groups = []
    for positions in own:
        short = max(0, size - len(positions))
        groups.append(torch.cat((positions[:size], over[:short])))
        over = over[short:]
    return [torch.cat((positions, over[k : k + 1])) for k, positions in enumerate(groups)]


def owners_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of the process that decodes the photos of these numbers."""
    return np.asarray(numbers % NUM_STRATA * crew().size // NUM_STRATA, dtype=np.int64)
