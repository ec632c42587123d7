"""A list of photos, some of them decoded, and decoded photos in a cache on disk."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.photos.decode import MAX_FILE_BYTES, ImageLike, decode, png_of
from foster.data.photos.find import item_name
from foster.errors import DataError, explained
from foster.system.files import read_limited, user_path, write_json, writing, written

VERSION = 4
"""Counts up when the same files would give other pixels."""

MOST_IN_A_FILE = 2048
MAX_FACTS_BYTES = 2**24


class PhotoList:
    """Photos in any form (paths, encoded bytes, other images), with an id each: empty until it is known."""

    def __init__(self, items: Iterable[ImageLike], ids: Sequence[str] = ()) -> None:
        self.items = items if isinstance(items, Sequence) else list(items)
        self.ids = list(ids) or [""] * len(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def are_files(self) -> bool:
        return all(isinstance(item, str | Path) for item in self.items)

    def name(self, position: int) -> str:
        return item_name(self.items[position], position)

    def path(self, position: int) -> Path:
        """Of one of files."""
        return Path(cast(str | Path, self.items[position]))

    def content(self, position: int) -> bytes:
        """The encoded photo. Raises OSError."""
        item = self.items[position]
        if isinstance(item, str | Path):
            return read_limited(Path(item), MAX_FILE_BYTES)
        return item if isinstance(item, bytes) else png_of(np.asarray(decode(item)))

    def select(self, positions: NDArray[np.int64]) -> "PhotoList":
        """Some of the photos, in this order."""
        chosen = positions.tolist()
        return PhotoList([self.items[k] for k in chosen], [self.ids[k] for k in chosen])


class Decoded(NamedTuple):
    """Some decoded photos: their positions `[n]`, height and width `[n, 2]` (0 where unreadable), where each begins
    `[n]`, the pixels in one piece, and why some cannot be read."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pixels: Tensor
    unreadable: Mapping[int, str]
    is_on_disk: bool = False

    @classmethod
    def of(cls, positions: NDArray[np.int64], photos: Sequence[NDArray[np.uint8] | str]) -> "Decoded":
        """Pixels `[height, width, 3]` of each photo, or the reason why it cannot be read."""
        shapes = [(0, 0) if isinstance(one, str) else one.shape[:2] for one in photos]
        sizes = np.array(shapes, np.int64).reshape(-1, 2)
        ends = (3 * sizes.prod(1)).cumsum()
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
        room = pixels.numpy()
        unreadable = {}
        for position, one, end in zip(positions.tolist(), photos, ends.tolist(), strict=True):
            if isinstance(one, str):
                unreadable[position] = one
            else:
                room[end - one.size : end] = one.ravel()
        return cls(positions, sizes, offsets_of(sizes), pixels, unreadable)

    @classmethod
    def joined(cls, parts: Sequence["Decoded"]) -> "Decoded":
        """All parts as one."""
        positions, sizes = (np.concatenate(column) for column in zip(*(part[:2] for part in parts), strict=True))
        unreadable = {position: reason for part in parts for position, reason in part.unreadable.items()}
        return cls(positions, sizes, offsets_of(sizes), torch.cat([part.pixels for part in parts]), unreadable)


def offsets_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each photo begins when they lie one after the other."""
    lengths = 3 * sizes.prod(1)
    return np.asarray(lengths.cumsum() - lengths, dtype=np.int64)


class CacheFolder:
    """Decoded photos on disk: `FOLDER/v4-256/HASH.pixels` and its `HASH.json`, one pair for at most 2,048 files of one
    folder.

    The hash in the name is of the files' paths. The JSON holds the size of each file and of its picture. It is
    written last: a pair without it does not count.
    """

    def __init__(self, folder: Path, short_side: int) -> None:
        self.folder = user_path(folder) / f"v{VERSION}-{short_side}"

    def parts(self, photos: PhotoList, positions: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """The positions of the files that share a pair."""
        by_folder: dict[str, list[int]] = {}
        for position in positions.tolist():
            by_folder.setdefault(photos.name(position).rpartition("/")[0], []).append(position)
        for group in by_folder.values():
            for first in range(0, len(group), MOST_IN_A_FILE):
                yield np.array(group[first : first + MOST_IN_A_FILE], np.int64)

    def read(self, part: NDArray[np.int64], photos: PhotoList, is_checked: bool = False) -> Decoded | None:
        """The pixels of these files, mapped from the disk; None where they are not there or do not fit.

        With `is_checked` every file must still have the size that it had.
        """
        path = self._path(part, photos)
        try:
            facts: dict[str, Any] = json.loads(read_limited(path.with_suffix(".json"), MAX_FACTS_BYTES))
            sizes = np.array(facts["sizes"], np.int64).reshape(-1, 2)
            num_bytes = int(3 * sizes.prod(1).sum())
            if len(sizes) != len(part) or path.stat().st_size != num_bytes:
                return None
            if is_checked and facts["files"] != _file_sizes(part, photos):
                return None
            # Copy on write: torch asks for memory that could be written to, and nothing here writes.
            pixels = np.memmap(path, np.uint8, "c") if num_bytes else np.empty(0, np.uint8)
            unreadable = {int(part[int(k)]): str(reason) for k, reason in facts["unreadable"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Decoded(part, sizes, offsets_of(sizes), torch.from_numpy(pixels), unreadable, is_on_disk=True)

    def write(self, part: NDArray[np.int64], photos: PhotoList, piece: Decoded) -> None:
        path = self._path(part, photos)
        index = {position: k for k, position in enumerate(part.tolist())}
        pixels = piece.pixels.numpy()
        facts = {
            "files": _file_sizes(part, photos),
            "sizes": piece.sizes.tolist(),
            "unreadable": {index[position]: reason for position, reason in piece.unreadable.items()},
        }
        with written(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with writing(path) as temporary:
                temporary.write_bytes(pixels.data)  # numpy's own would not say that the disk is full
            write_json(path.with_suffix(".json"), facts)

    def _path(self, part: NDArray[np.int64], photos: PhotoList) -> Path:
        paths = "\0".join(str(photos.path(position).absolute()) for position in part.tolist())
        return self.folder / f"{hashlib.sha256(os.fsencode(paths)).hexdigest()[:40]}.pixels"


def _file_sizes(part: NDArray[np.int64], photos: PhotoList) -> list[int]:
    """The bytes of each file; -1 for one that is gone."""
    sizes = []
    for position in part.tolist():
        try:
            sizes.append(photos.path(position).stat().st_size)
        except OSError:
            sizes.append(-1)
    return sizes


def check_writable(folder: Path) -> None:
    """Refuse a folder for the cache that cannot be made, before anything is decoded."""
    with explained(DataError, f"engine.photo_cache: cannot write '{folder}'"):
        user_path(folder).mkdir(parents=True, exist_ok=True)
