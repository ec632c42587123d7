"""Which photos there are, and of which classes: a folder with a subfolder for each class, a CSV file or a list of paths
and labels, arrays. Nothing is decoded here."""

import csv
import io
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foster.data.images import ImageSet
from foster.data.photos.decode import SUFFIXES, ImageLike
from foster.errors import DataError, explained
from foster.system.counts import counted
from foster.system.files import read_limited, user_path
from foster.system.output import listed

NUM_SHOWN = 8
MAX_LIST_BYTES = 2**28
"""The largest CSV file or other list of photos."""

MOST_NAME_BYTES = 255
"""The longest file name of common file systems."""

WITHOUT_ENDING = "without an ending"
LINKED_FOLDERS, UNREADABLE_FOLDERS = "linked folder(s)", "unreadable folder(s)"
BESIDE_CLASSES = "outside the class folders"

SPLIT_NAMES = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
MONTH = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(tember)?|oct(ober)?|(nov|dec)(ember)?"
DATE = re.compile(rf".*(19|20)\d\d.*|\d{{3}}\w{{5}}|{MONTH}", re.IGNORECASE)
"""Names of folders that are dates and no classes: 2024, 17.5.2024, January, or a camera's 100CANON."""


@dataclass(frozen=True)
class Unreadable:
    """An image that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Photos:
    """Images that need not be decoded yet, with the class name of each. `title` names their source in messages.

    `passed_over` counts other files as in FoundFiles; `empty_classes` are folders without an image.
    """

    items: Sequence[ImageLike]
    labels: tuple[str, ...]
    title: str
    passed_over: Mapping[str, int] = field(default_factory=dict)
    empty_classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every class once, in the order in which it comes."""
        return tuple(dict.fromkeys(self.labels))

    def name(self, position: int) -> str:
        """How messages name an image."""
        return item_name(self.items[position], position)

    def unreadable(self, reasons: Mapping[int, str]) -> list[Unreadable]:
        """The images at some positions, with the reasons why they cannot be read."""
        return [Unreadable(self.name(position), reason) for position, reason in reasons.items()]


Images: TypeAlias = Sequence[ImageLike] | NDArray[Any] | Tensor
Labels: TypeAlias = Sequence[object] | NDArray[Any] | Tensor
Source: TypeAlias = str | Path | tuple[Images, Labels] | ImageSet | Photos
"""A folder, a CSV file, `(images, labels)`, or images that are already at hand."""

PATH_COLUMNS = ("path", "file", "filename", "filepath", "file_path", "image", "image_path")
LABEL_COLUMNS = ("label", "class", "class_name", "category")
GIVEN = "the arguments"
"""The title of images that lie in no folder."""

WITHOUT_LABELS = (
    "labels are missing: give images with a label each, a folder with a subfolder for each class, or a .csv file"
)
LABEL_RULE = "there must be one name or number for each image; of one-hot rows, give the argmax"


def find_photos(source: Source | Images, labels: Labels | None = None) -> Photos:
    """The photos of a source; give `labels` if the source does not name the classes. Nothing is decoded yet."""
    if labels is not None:
        if isinstance(source, str | Path | ImageSet | Photos):
            raise DataError("labels belong to images or arrays; a folder or a CSV file names the classes itself")
        return _from_arrays(cast(Images, source), labels)
    if isinstance(source, Photos):
        return source
    if isinstance(source, ImageSet):
        return Photos(list(source.images), tuple(source.class_names[k] for k in source.labels.tolist()), GIVEN)
    if isinstance(source, tuple) and len(source) == 2:
        return _from_arrays(*source)
    if not isinstance(source, str | Path):
        raise DataError(WITHOUT_LABELS)
    path = user_path(source)
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        raise DataError(f"there is no folder or CSV file '{shown(path)}'")
    if path.suffix.lower() in (".csv", ".tsv"):
        return _from_csv(path)
    raise DataError(f"'{shown(path)}' is neither a folder with a subfolder for each class nor a .csv file")


def class_name(text: str, origin: str) -> str:
    """A class name in Unicode's form NFC, so that the same word is the same class on every system."""
    name = unicodedata.normalize("NFC", shown(text)).strip()
    if not name:
        raise DataError(f"a class name is empty ({origin})")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise DataError(f"class name {name!r} holds control characters ({origin})")
    if len(name) > 200:
        raise DataError(f"class name '{name[:40]}...' has {len(name)} characters; at most 200 are allowed ({origin})")
    return name


def folder_name(text: str, origin: str) -> str:
    """A class name that a visible folder of its photos can have. Raises DataError."""
    try:
        name = class_name(text, origin)
    except UnicodeEncodeError:
        raise DataError(f"the class name is not valid text ({origin})") from None
    if "/" in name or "\\" in name or name.startswith(".") or len(name.encode()) > MOST_NAME_BYTES:
        raise DataError(
            f"no folder of photos can be called '{name}' ({origin}): slashes, a first dot and more than "
            f"{MOST_NAME_BYTES} bytes are not allowed"
        )
    return name


def _from_folder(folder: Path) -> Photos:
    title = f"'{shown(folder)}'"
    if (folder / "bundle.json").is_file():
        raise DataError(
            f"{title} is a bundle, not photos; to teach it more, give photos and begin with it: foster learn PHOTOS "
            f"--from {shown(folder)}, or from Python foster.load({shown(folder)!r}).learn(photos)"
        )
    with explained(DataError, f"cannot read {title}"):
        seen = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    entries = sorted((entry for entry in seen if entry.is_dir()), key=lambda entry: natural_order(entry.name))
    if not entries:
        loose = counted(len(find_files(folder).images), "image")
        raise DataError(
            f"{title} must have one subfolder for each class; it holds {loose} and no subfolder "
            "(if it is a class, give the folder that it is in)"
        )
    items: list[ImageLike] = []
    labels: list[str] = []
    names = [class_name(entry.name, title) for entry in entries]
    passed_over = Counter({BESIDE_CLASSES: len(seen) - len(entries)})
    inner: dict[Path, tuple[str, ...]] = {}
    for entry, name in zip(entries, names, strict=True):
        files = find_files(entry)
        passed_over += files.passed_over
        if files.images:
            items += files.images
            labels += [name] * len(files.images)
            inner[entry] = inner_folders(entry, files.images)
    if not items:
        others = f"; passed over: {passed_over_text(passed_over)}" if passed_over else ""
        raise DataError(f"no images below {title} (names that end in {', '.join(sorted(SUFFIXES))}){others}")
    full = set(labels)
    empty = tuple(name for name in dict.fromkeys(names) if name not in full)
    check_are_classes(inner, title)
    return Photos(items, tuple(labels), title, passed_over, empty)


def _from_csv(path: Path) -> Photos:
    title = f"'{shown(path)}'"
    text = read_text(path, title, "CSV")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    try:
        rows = list(enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), start=1))
    except csv.Error as error:
        raise DataError(f"{title} is not a CSV file in UTF-8: {error}") from None
    rows = [(number, [cell.strip() for cell in row]) for number, row in rows if any(cell.strip() for cell in row)]
    path_column, label_column, has_header = _columns(rows[0][1] if rows else [])
    items: list[ImageLike] = []
    labels: list[str] = []
    for number, row in rows[has_header:]:
        if len(row) <= max(path_column, label_column) or not row[path_column]:
            raise DataError(f"line {number} of {title} has no path and label: {delimiter.join(row)[:80]!r}")
        items.append(path.parent / row[path_column])
        labels.append(class_name(row[label_column], f"line {number} of {title}"))
    if not items:
        raise DataError(f"{title} names no images; it should hold a path and a label on each line")
    return Photos(items, tuple(labels), title)


def _columns(first_row: list[str]) -> tuple[int, int, bool]:
    """Which columns hold path and label, and whether the first row is a header that says so."""
    lower = [cell.lower() for cell in first_row]
    paths = [lower.index(name) for name in PATH_COLUMNS if name in lower]
    labels = [lower.index(name) for name in LABEL_COLUMNS if name in lower]
    return (paths[0], labels[0], True) if paths and labels else (0, 1, False)


def _from_arrays(images: Images, labels: Labels) -> Photos:
    if any(isinstance(part, str | Path | bytes | Image.Image) for part in (images, labels)):
        raise DataError(WITHOUT_LABELS)
    values = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    names = tuple(_label_text(value, position) for position, value in enumerate(values))
    items = _items(images)
    if len(items) != len(names):
        raise DataError(f"{len(items)} images, but {len(names)} labels")
    if not names:
        raise DataError("there are no images to read")
    return Photos(items, names, GIVEN)


def _items(images: Images) -> Sequence[ImageLike]:
    """Many images as a sequence. A batch of pixels stays as it is: it behaves like a sequence of its images."""
    if _is_pixels(images):
        return cast(Sequence[ImageLike], images)
    return list(np.atleast_1d(images) if isinstance(images, np.ndarray) else images)


def _label_text(label: object, position: int) -> str:
    """The class name that a label stands for."""
    value = label.item() if isinstance(label, np.generic | Tensor) and label.ndim == 0 else label
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        shortened = " ".join(repr(value).split())[:40]
        raise DataError(f"label {position} is {shortened}: {LABEL_RULE}")
    return class_name(str(value), "labels")


def as_items(images: ImageLike | Images) -> Sequence[ImageLike]:
    """One image or many, as a sequence; a folder becomes the images below it."""
    if isinstance(images, str | Path):
        return found_files([images]).images
    if isinstance(images, bytes | Image.Image) or (_is_pixels(images) and _is_one(images)):
        return [cast(ImageLike, images)]
    items: list[ImageLike] = []
    for image in _items(images):
        items += found_files([image]).images if isinstance(image, str | Path) else [image]
    return items


def _is_pixels(images: object) -> TypeGuard[NDArray[Any] | Tensor]:
    """Whether it is a tensor or an array of numbers; one of texts or objects is a list of paths or of images."""
    return isinstance(images, Tensor) or (isinstance(images, np.ndarray) and images.dtype.kind not in "OSU")


def _is_one(array: NDArray[Any] | Tensor) -> bool:
    """Whether an array or a tensor is a single image and not a batch of them.

    A tensor `[H, W, 3]` counts as one image, so that its reader can say that channels must come first.
    """
    channel_axes = (0, -1) if isinstance(array, Tensor) else (-1,)
    return array.ndim < 3 or (array.ndim == 3 and any(array.shape[axis] in (1, 3, 4) for axis in channel_axes))


class FoundFiles(NamedTuple):
    """Image files, and how many others were passed over, by the endings of their names or by what they are."""

    images: list[Path]
    passed_over: Counter[str]


def find_files(folder: Path) -> FoundFiles:
    """All image files below a folder, by their names' endings; each folder's files first, everything sorted.

    Hidden files and folders are not counted.
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
    """`5 .txt, 1 without an ending`, the most frequent first."""
    ordered = sorted(passed_over.items(), key=lambda entry: -entry[1])
    num_others = sum(count for _, count in ordered[NUM_SHOWN:])
    others = [f"{num_others} others"] if num_others else []
    return ", ".join([*(f"{count} {what}" for what, count in ordered[:NUM_SHOWN]), *others])


def read_text(path: Path, title: str, kind: str = "text") -> str:
    """A text file of the user's in UTF-8; DataError where it cannot be read, or is no such file."""
    with explained(DataError, f"cannot read {title}"):
        content = read_limited(path, MAX_LIST_BYTES)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{title} is not a {kind} file in UTF-8: {error}") from None


def similar_names(names: Sequence[str], known: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Groups of different class names, at least one of them in `names`, that differ only in case or in how words are
    joined, such as `Red Fox` and `red_fox`."""
    groups: dict[str, dict[str, None]] = {}
    for name in (*known, *names):
        groups.setdefault(re.sub(r"[\s_-]+", " ", name.casefold()), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1 and not group.keys().isdisjoint(names)]


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


def check_are_classes(inner: Mapping[Path, Sequence[str]], title: str) -> None:
    """Raise DataError where folders that hold only folders (`inner_folders`) look like the parts of a dataset, such as
    `test`, like dates, or like groups of classes. Folders that hold photos themselves are classes."""
    parts = [entry for entry in inner if entry.name.lower() in SPLIT_NAMES]
    if len(parts) == len(inner) or (parts and all(inner.values())):
        training = max(inner, key=lambda entry: (entry.name.lower().startswith("train"), entry not in parts))
        raise DataError(
            f"{title} holds the parts of a dataset ({listed([entry.name for entry in inner])}), not classes; "
            f"give one part, for example '{shown(training)}'"
        )
    for part in parts:
        if inner[part]:
            raise DataError(
                f"'{shown(part)}' holds folders ({listed(inner[part])}), so it is no class but a part of a dataset; "
                f"move it out of {title}"
            )
    names = [name for names in inner.values() for name in names]
    if not all(inner.values()) or all(map(DATE.fullmatch, names)):
        return
    is_by_date = all(DATE.fullmatch(entry.name) for entry in inner)
    is_group = len(names) > len(inner)  # not one folder in each, such as cat/images and dog/images
    if is_by_date or is_group:
        first, taken = next(iter(inner)), listed([entry.name for entry in inner])
        raise DataError(
            f"{title} holds only folders of folders ({taken}), one level above the classes; if the classes are "
            f"{listed(inner[first])}, give '{shown(first)}', and each of the others to a learn of its own; if they are "
            f"{taken}, put their photos directly into them"
        )


def item_name(item: ImageLike, position: int) -> str:
    """How messages name an image: by its path, else by its position."""
    return shown(item) if isinstance(item, str | Path) else f"image {position}"
