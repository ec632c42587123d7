"""Photos as they were encoded: a compact list of files, or the bytes themselves."""

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foster.data.photos.find import shown
from foster.data.photos.pixels import pixels_of


class Encoded(Protocol):
    """Photos by position, each with a name for messages; nothing is decoded here."""

    @property
    def ids(self) -> Sequence[str]:
        """By which they are known; empty where they have none."""

    def __len__(self) -> int: ...

    def name(self, position: int) -> str: ...

    def content(self, position: int) -> bytes:
        """The encoded photo. Raises OSError."""

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        """The decoded photo `[height, width, 3]`, at most so large. Raises OSError and ImageError."""

    def select(self, positions: NDArray[np.int64]) -> "Encoded":
        """Some of the photos, in this order."""


class PhotoFiles:
    """Files in folders, a few dozen bytes each: the number of the folder, and the name inside it."""

    ids: Sequence[str] = ()

    def __init__(self, folders: Sequence[Path], folder_ids: NDArray[np.int32], names: NDArray[np.bytes_]) -> None:
        self.folders = tuple(folders)
        self.folder_ids = folder_ids
        self.names = names

    @classmethod
    def of(cls, folders: Sequence[Path], names: Sequence[Sequence[str]]) -> "PhotoFiles":
        """The files `names[k]` in the folder `folders[k]`, folder by folder."""
        counts = [len(of_folder) for of_folder in names]
        ids = np.repeat(np.arange(len(folders), dtype=np.int32), counts)
        return cls(folders, ids, np.array([os.fsencode(name) for name in chain.from_iterable(names)], np.bytes_))

    def __len__(self) -> int:
        return len(self.folder_ids)

    def file_name(self, position: int) -> str:
        """The name inside its folder."""
        return os.fsdecode(self.names[position])

    def path(self, position: int) -> Path:
        return self.folders[int(self.folder_ids[position])] / self.file_name(position)

    def name(self, position: int) -> str:
        return shown(self.path(position))

    def content(self, position: int) -> bytes:
        return self.path(position).read_bytes()

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        return pixels_of(self.content(position), short_side)

    def select(self, positions: NDArray[np.int64]) -> "PhotoFiles":
        return PhotoFiles(self.folders, self.folder_ids[positions], self.names[positions])


class PhotoBytes:
    """Photos in memory as the bytes of their files, with the ids that they have had before, where they had any."""

    def __init__(self, contents: Sequence[bytes], ids: Sequence[str] = ()) -> None:
        self.contents = list(contents)
        self.ids = list(ids)

    def __len__(self) -> int:
        return len(self.contents)

    def name(self, position: int) -> str:
        return f"kept photo {position}"

    def content(self, position: int) -> bytes:
        return self.contents[position]

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        return pixels_of(self.contents[position], short_side)

    def select(self, positions: NDArray[np.int64]) -> "PhotoBytes":
        ids = [self.ids[position] for position in positions.tolist()] if self.ids else ()
        return PhotoBytes([self.contents[position] for position in positions.tolist()], ids)


class PhotoItems:
    """Photos that somebody else decodes, in a way of their own: their names and ids are left, and that way."""

    def __init__(
        self, names: Sequence[str], ids: Sequence[str], decode: Callable[[int], NDArray[np.uint8]] | None = None
    ) -> None:
        self.names = list(names)
        self.ids = list(ids)
        self._decode = decode

    def __len__(self) -> int:
        return len(self.names)

    def name(self, position: int) -> str:
        return self.names[position]

    def content(self, position: int) -> bytes:
        raise FileNotFoundError(self.names[position])

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        if self._decode is None:
            raise FileNotFoundError(self.names[position])
        return self._decode(position)

    def select(self, positions: NDArray[np.int64]) -> "PhotoItems":
        chosen, decode = positions.tolist(), self._decode
        again = None if decode is None else lambda position: decode(chosen[position])
        return PhotoItems([self.names[k] for k in chosen], [self.ids[k] for k in chosen], again)
