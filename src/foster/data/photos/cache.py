"""The disk cache of decoded photos: a strip of pixels for each folder of files, written whole or not at all."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.photos.encoded import PhotoFiles
from foster.data.photos.find import shown
from foster.errors import DataError, explained
from foster.system.files import read_limited, user_path, write_json, writing, written

VERSION = 2
"""Counts up when the same files would give other pixels."""

MOST_IN_A_STRIP = 2048
MAX_FACTS_BYTES = 2**24


class Strip(NamedTuple):
    """Some photos one after the other: positions `[n]`, height and width `[n, 2]` (0 where unreadable), where each
    begins `[n]`, the pixels in one piece, and why some cannot be read."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pixels: Tensor
    unreadable: Mapping[int, str]
    is_on_disk: bool = False

    @classmethod
    def of(cls, positions: NDArray[np.int64], decoded: Sequence[NDArray[np.uint8] | str]) -> "Strip":
        shapes = [(0, 0) if isinstance(one, str) else one.shape[:2] for one in decoded]
        sizes = np.array(shapes, np.int64).reshape(-1, 2)
        ends = (3 * sizes.prod(1)).cumsum()
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
        room = pixels.numpy()
        unreadable = {}
        for position, one, end in zip(positions.tolist(), decoded, ends.tolist(), strict=True):
            if isinstance(one, str):
                unreadable[position] = one
            else:
                room[end - one.size : end] = one.ravel()
        return cls(positions, sizes, offsets_of(sizes), pixels, unreadable)

    @classmethod
    def joined(cls, strips: Sequence["Strip"]) -> "Strip":
        """All of them as one."""
        positions, sizes = (np.concatenate(column) for column in zip(*(strip[:2] for strip in strips), strict=True))
        unreadable = {position: reason for strip in strips for position, reason in strip.unreadable.items()}
        return cls(positions, sizes, offsets_of(sizes), torch.cat([strip.pixels for strip in strips]), unreadable)


def offsets_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of the photos begins that lie one after the other."""
    lengths = 3 * sizes.prod(1)
    return np.asarray(lengths.cumsum() - lengths, dtype=np.int64)


class CacheFolder:
    """`FOLDER/v2-256/HASH.pixels` and its `HASH.json`, one pair for at most 2,048 files of one folder.

    The hash is of the files' folder and names, so that other data never meets; the JSON holds each file's size and that
    of its pixels, and the hash of the pixels. It is written last: a pair without it does not count.
    """

    def __init__(self, folder: Path, short_side: int) -> None:
        self.folder = user_path(folder) / f"v{VERSION}-{short_side}"

    def parts(self, photos: PhotoFiles) -> Iterator[NDArray[np.int64]]:
        """The positions of the files that share a strip."""
        order = np.argsort(photos.folder_ids, kind="stable")
        bounds = np.flatnonzero(np.diff(photos.folder_ids[order])) + 1
        for group in np.split(order, bounds):
            for first in range(0, len(group), MOST_IN_A_STRIP):
                yield group[first : first + MOST_IN_A_STRIP]

    def read(self, part: NDArray[np.int64], photos: PhotoFiles, is_checked: bool = False) -> Strip | None:
        """The strip of these files, read from the disk as it is used; None where it is not there or does not fit.

        With `is_checked` every file must still have the size it had, and the pixels their hash.
        """
        path = self._path(part, photos)
        try:
            facts: dict[str, Any] = json.loads(read_limited(path.with_suffix(".json"), MAX_FACTS_BYTES))
            sizes = np.array(facts["sizes"], np.int64).reshape(-1, 2)
            num_bytes = int(3 * sizes.prod(1).sum())
            if len(sizes) != len(part) or path.stat().st_size != num_bytes:
                return None
            if is_checked:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if facts["files"] != _file_sizes(part, photos) or facts["sha256"] != digest:
                    return None
            # Copy on write: torch asks for memory that could be written to, and nothing here writes.
            pixels = np.memmap(path, np.uint8, "c") if num_bytes else np.empty(0, np.uint8)
            unreadable = {int(part[int(k)]): str(reason) for k, reason in facts["unreadable"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Strip(part, sizes, offsets_of(sizes), torch.from_numpy(pixels), unreadable, is_on_disk=True)

    def write(self, part: NDArray[np.int64], photos: PhotoFiles, strip: Strip) -> None:
        path = self._path(part, photos)
        index = {position: k for k, position in enumerate(part.tolist())}
        pixels = strip.pixels.numpy()
        facts = {
            "version": VERSION,
            "files": _file_sizes(part, photos),
            "sizes": strip.sizes.tolist(),
            "unreadable": {index[position]: reason for position, reason in strip.unreadable.items()},
            "sha256": hashlib.sha256(pixels.data).hexdigest(),
        }
        with written(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with writing(path) as temporary:
                temporary.write_bytes(pixels.data)  # numpy's own would not say that the disk is full
            write_json(path.with_suffix(".json"), facts)

    def _path(self, part: NDArray[np.int64], photos: PhotoFiles) -> Path:
        folder = photos.folders[int(photos.folder_ids[part[0]])].absolute()
        text = "\0".join([shown(folder), *(photos.file_name(position) for position in part.tolist())])
        return self.folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.pixels"


def _file_sizes(part: NDArray[np.int64], photos: PhotoFiles) -> list[int]:
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
