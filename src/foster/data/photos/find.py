"""Image files in folders: which there are, in which order, and what is passed over."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from foster.data.photos.decode import SUFFIXES
from foster.errors import DataError, explained
from foster.system.files import read_plain, user_path

NUM_SHOWN = 8

WITHOUT_ENDING = "without an ending"
LINKED_FOLDERS, UNREADABLE_FOLDERS = "linked folders", "unreadable folders"
BESIDE_CLASSES = "beside the class folders"
UNREAD_PHOTOS = frozenset({".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"})
"""What is passed over that has no ending to be named by, and what phones and cameras write that is not decoded."""


class FoundFiles(NamedTuple):
    """Image files, and how many others were passed over: by the ending of their names or by what they are."""

    images: list[Path]
    passed_over: Counter[str]


def find_files(folder: Path) -> FoundFiles:
    """All image files below a folder, by their names' endings; each folder's files first, everything sorted.

    Hidden files and folders are nobody's photos: they are not even counted.
    """
    images: list[Path] = []
    passed_over: Counter[str] = Counter()

    def is_seen(name: str) -> bool:
        return not name.startswith(".")

    def is_unreadable(error: OSError) -> None:
        passed_over[UNREADABLE_FOLDERS] += 1

    for parent, folders, files in os.walk(folder, onerror=is_unreadable):
        folders[:] = sorted(filter(is_seen, folders), key=natural_order)
        passed_over[LINKED_FOLDERS] += sum(Path(parent, name).is_symlink() for name in folders)
        for name in sorted(filter(is_seen, files), key=natural_order):
            ending = Path(name).suffix.lower()
            if ending in SUFFIXES:
                images.append(Path(parent, name))
            else:
                passed_over[shown(ending) or WITHOUT_ENDING] += 1
    return FoundFiles(images, +passed_over)


def found_files(paths: Iterable[str | Path]) -> FoundFiles:
    """Files as they are, whatever their names; folders as the images below them; in the order given."""
    everything = FoundFiles([], Counter())
    for given in paths:
        path = user_path(given)
        below = find_files(path) if path.is_dir() else FoundFiles([path], Counter())
        everything.images.extend(below.images)
        everything.passed_over.update(below.passed_over)
    return everything


def passed_over_text(passed_over: Mapping[str, int]) -> str:
    """`5 .txt, 1 without an ending`, those that are most first."""
    ordered = sorted(passed_over.items(), key=lambda entry: -entry[1])
    num_others = sum(count for _, count in ordered[NUM_SHOWN:])
    others = [f"{num_others} others"] if num_others else []
    return ", ".join([*(_passed_over(what, count) for what, count in ordered[:NUM_SHOWN]), *others])


def _passed_over(what: str, count: int) -> str:
    if what in UNREAD_PHOTOS:
        return f"{count} {what} (to use {'it' if count == 1 else 'them'}, save as JPEG)"
    return f"{count} {what.removesuffix('s') if count == 1 and what in (LINKED_FOLDERS, UNREADABLE_FOLDERS) else what}"


def read_text(path: Path, title: str, kind: str = "text") -> str:
    """A text file of the user's in UTF-8; DataError where it cannot be read, or is no such file."""
    with explained(DataError, f"cannot read {title}"):
        content = read_plain(path, may_be_link=True)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{title} is not a {kind} file in UTF-8: {error}") from None


def some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and whether there are more: `cat, dog, ...`."""
    return ", ".join([*map(shown, names[:most]), *["..."] * (len(names) > most)])


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which `class 2` stands before `class 10`."""
    parts = re.split(r"(\d+)", name)
    # isdecimal is what int() reads: a superscript two is a digit, but no decimal.
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part]


def shown(path: str | Path) -> str:
    """A path as text that can be printed and encoded, also where its bytes are no valid text."""
    return os.fsencode(path).decode("utf-8", "replace")
