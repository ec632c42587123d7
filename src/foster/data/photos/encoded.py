"""Photos as they were encoded or given: a compact list of files, their bytes, or whatever else can be decoded."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foster.data.photos.decode import ImageLike
from foster.data.photos.find import shown
from foster.data.photos.pixels import image_id, pixels_of, shrunk
from foster.data.photos.read import decode_shown, item_name
from foster.data.photos.resize import Resizing


class Encoded(ABC):
    """Photos by position, each with a name for messages; nothing is decoded here."""

    ids: list[str]
    """By which they are known; empty where they have none."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, position: int) -> str: ...

    @abstractmethod
    def content(self, position: int) -> bytes:
        """The encoded photo. Raises OSError."""

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        """The decoded photo `[height, width, 3]`, at most so large. Raises OSError and ImageError."""
        return pixels_of(self.content(position), short_side)

    @abstractmethod
    def select(self, positions: NDArray[np.int64]) -> "Encoded":
        """Some of the photos, in this order."""


class PhotoFiles(Encoded):
    """Files in folders, a few dozen bytes each: the number of the folder, and the name inside it."""

    def __init__(self, folders: Sequence[Path], folder_ids: NDArray[np.int32], names: NDArray[np.bytes_]) -> None:
        self.ids = []
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

    def select(self, positions: NDArray[np.int64]) -> "PhotoFiles":
        return PhotoFiles(self.folders, self.folder_ids[positions], self.names[positions])


class PhotoBytes(Encoded):
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

    def select(self, positions: NDArray[np.int64]) -> "PhotoBytes":
        ids = [self.ids[position] for position in positions.tolist()] if self.ids else ()
        return PhotoBytes([self.contents[position] for position in positions.tolist()], ids)


class PhotoItems(Encoded):
    """Photos in any form that a user has them in. One that is decoded gets the id of what a network sees of it: it
    is the same whatever is kept."""

    def __init__(self, items: Sequence[ImageLike], resizing: Resizing, ids: Sequence[str] = ()) -> None:
        self.items = items
        self.resizing = resizing
        self.ids = list(ids) or [""] * len(items)

    def __len__(self) -> int:
        return len(self.items)

    def name(self, position: int) -> str:
        return item_name(self.items[position], position)

    def content(self, position: int) -> bytes:
        raise FileNotFoundError(self.name(position))

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        picture = decode_shown(self.items[position], max(self.resizing.size))
        self.ids[position] = image_id(self.resizing(picture))
        return shrunk(picture, short_side)

    def select(self, positions: NDArray[np.int64]) -> "PhotoItems":
        chosen = positions.tolist()
        return PhotoItems([self.items[k] for k in chosen], self.resizing, [self.ids[k] for k in chosen])
