"""Image files in folders: which there are, in which order, what is passed over, and whether folders are classes."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from foster.data.photos.decode import SUFFIXES
from foster.errors import DataError, explained
from foster.system.files import read_limited, user_path

NUM_SHOWN = 8
MAX_LIST_BYTES = 2**28
"""Of a CSV file or another list of photos."""

WITHOUT_ENDING = "without an ending"
LINKED_FOLDERS, UNREADABLE_FOLDERS = "linked folders", "unreadable folders"
BESIDE_CLASSES = "beside the class folders"
UNREAD_PHOTOS = frozenset({".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"})
"""What is passed over that has no ending to be named by, and what phones and cameras write that is not decoded."""

SPLIT_NAMES = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
MONTH = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(tember)?|oct(ober)?|(nov|dec)(ember)?"
DATE = re.compile(rf".*(19|20)\d\d.*|\d{{3}}\w{{5}}|{MONTH}", re.IGNORECASE)
"""What photos are sorted by that is no class: 2024, 17.5.2024, January, or a camera's 100CANON."""


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
        content = read_limited(path, MAX_LIST_BYTES)
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


def inner_folders(folder: Path, images: Iterable[Path]) -> tuple[str, ...]:
    """The subfolders that hold the `images` below a folder; none where it holds one of them itself."""
    parents = dict.fromkeys(image.relative_to(folder).parts[:-1] for image in images)
    return () if () in parents else tuple(dict.fromkeys(parent[0] for parent in parents))


def doubt_of(inner: Mapping[Path, Sequence[str]], title: str) -> str:
    """What to look at where folders that are taken for classes hold nothing but folders (`inner_folders`); empty where
    they look like classes. The parts of a dataset, such as `test`, are none: a DataError says so."""
    parts = [entry for entry in inner if entry.name.lower() in SPLIT_NAMES]
    if len(parts) == len(inner) or (parts and all(inner.values())):
        training = max(inner, key=lambda entry: (entry.name.lower().startswith("train"), entry not in parts))
        raise DataError(
            f"{title} holds the parts of a dataset ({some([entry.name for entry in inner])}), not classes; "
            f"give one part, for example '{shown(training)}'"
        )
    for part in parts:
        if inner[part]:
            raise DataError(
                f"'{shown(part)}' holds folders ({some(inner[part])}), so it is no class but a part of a dataset; "
                f"move it out of {title}"
            )
    names = [name for names in inner.values() for name in names]
    are_dates = all(DATE.fullmatch(entry.name) for entry in inner) and not any(map(DATE.fullmatch, names))
    has_one_each = len(names) == len(inner)  # a class with all its photos in 'images'
    if not all(inner.values()) or (has_one_each and not are_dates) or all(map(DATE.fullmatch, names)):
        return ""
    first = next(iter(inner))
    taken = some([entry.name for entry in inner])
    if are_dates and not has_one_each:
        raise DataError(
            f"the folders in {title} are dates ({taken}), and the classes ({some(inner[first])}) lie inside them; "
            f"give one date at a time, '{shown(first)}' first and each as a learn of its own, or put the photos of "
            "each class into one folder"
        )
    return (
        f"{title} holds only folders of folders, and {taken} are taken for the classes; if the classes are "
        f"{some(inner[first])}, give '{shown(first)}' in its place"
    )
