"""The photos of a dataset in folders: the names of the files of each class, read from a folder or a list, and divided
into training and test photos."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from foster.data.photos.decode import SUFFIXES
from foster.data.photos.find import class_name, natural_order, read_text, shown, some
from foster.errors import DataError, explained
from foster.seeding import Address, generator
from foster.system.counts import counted


@dataclass(frozen=True)
class Tree:
    """The photos of each class: the folder that its names are relative to, and the names."""

    title: str
    folders: Mapping[str, Path]
    names: Mapping[str, Sequence[str]]

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.names)

    def __len__(self) -> int:
        return sum(map(len, self.names.values()))

    def of(self, class_names: Sequence[str]) -> "Tree":
        """The same with these classes in this order; all of them must have photos."""
        for name in class_names:
            if not self.names.get(name):
                raise DataError(f"class '{name}' has no photos in {self.title}")
        return Tree(self.title, self.folders, {name: self.names[name] for name in class_names})

    def listed(self) -> tuple[list[str], Tensor]:
        """The paths of all photos, class by class, and the class id of each."""
        paths = [f"{self.folders[name]}/{file}" for name, files in self.names.items() for file in files]
        counts = torch.tensor([len(files) for files in self.names.values()], dtype=torch.int64)
        return paths, torch.arange(len(counts)).repeat_interleave(counts)

    def divided(self, share: float, seed: int) -> tuple["Tree", "Tree"]:
        """Two parts. The second has `share` of each class, chosen by the seed: at least one photo, never all."""
        first, second = {}, {}
        random = generator(Address(seed, "test photos"))
        for name, own in self.names.items():
            if len(own) < 2:
                raise DataError(f"class '{name}' has {len(own)} photo in {self.title}, too few to test on one")
            count = min(max(1, round(len(own) * share)), len(own) - 1)
            chosen = set(torch.randperm(len(own), generator=random)[:count].tolist())
            second[name] = [file for k, file in enumerate(own) if k in chosen]
            first[name] = [file for k, file in enumerate(own) if k not in chosen]
        return Tree(self.title, self.folders, first), Tree(self.title, self.folders, second)


def read_tree(folder: Path, only: Iterable[str] | None = None) -> Tree:
    """The classes below a folder, each a folder of photos; `only` those, where given, each of which must be there."""
    title = f"'{shown(folder)}'"
    with explained(DataError, f"cannot read {title}"):
        entries = sorted((entry.name for entry in os.scandir(folder) if entry.is_dir()), key=natural_order)
    entries = [entry for entry in entries if not entry.startswith(".")]
    if only is not None:
        wanted, there = dict.fromkeys(only), set(entries)
        missing = [name for name in wanted if name not in there]
        if missing:
            raise DataError(f"{len(missing)} of {len(wanted)} class folders are missing in {title}: {some(missing)}")
        entries = [entry for entry in entries if entry in wanted]
    if not entries:
        raise DataError(f"{title} holds no folders; there must be one with photos for each class")
    folders: dict[str, Path] = {}
    names: dict[str, list[str]] = {}
    for entry in entries:
        name = class_name(entry, title)
        if name in folders:
            raise DataError(f"the folders '{folders[name].name}' and '{entry}' would both be class '{name}' in {title}")
        folders[name], names[name] = folder / entry, _photos_below(folder / entry)
    empty = [name for name, own in names.items() if not own]
    if empty:
        what = counted(len(empty), "class folder")
        raise DataError(f"{what} in {title} without a photo: {some(empty)}; remove or fill what is empty")
    return Tree(title, folders, names)


def read_list(path: Path, root: Path) -> Tree:
    """The photos of a list: on each line a path, relative to `root`, and after the last blank its label."""
    title = f"'{shown(path)}'"
    by_class: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, title).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        file, _, label = line.strip().rpartition(" ")
        if not file:
            raise DataError(f"line {number} of {title} is no path and label: {line[:80]!r}")
        if Path(file).suffix.lower() in SUFFIXES:  # published lists name the folders themselves, too
            by_class.setdefault(class_name(label, f"line {number} of {title}"), []).append(file.strip())
    if not by_class:
        raise DataError(f"{title} names no photos; each line should hold a path and a label")
    names = {name: by_class[name] for name in sorted(by_class, key=natural_order)}
    return Tree(title, dict.fromkeys(names, root), names)


def read_names(path: Path) -> list[str]:
    """The first word of every line: the class folders of a subset."""
    title = f"photos.subset: '{shown(path)}'"
    words = [line.split() for line in read_text(path, title).splitlines()]
    names = [line[0] for line in words if line and not line[0].startswith("#")]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if not names or repeated:
        what = f"'{repeated[0]}' stands in it twice" if repeated else "it is empty"
        raise DataError(f"{title} must name each class folder once, but {what}")
    return names


def check_same_classes(train: Tree, test: Tree) -> None:
    """Every class needs photos to train on, and some to test on."""
    for name in test.class_names:
        if name not in train.names:
            raise DataError(f"class '{name}' has photos in {test.title}, but none to train on in {train.title}")
    missing = [name for name in train.class_names if name not in test.names]
    if missing:
        raise DataError(f"{counted(len(missing), 'class')} without a photo in {test.title}: {some(missing)}")


def _photos_below(folder: Path) -> list[str]:
    """The names of all photos below a folder, relative to it, in order."""
    names = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        prefix = "" if parent == str(folder) else f"{os.path.relpath(parent, folder)}/"
        names += [
            f"{prefix}{name}"
            for name in sorted(files)
            if f".{name.rpartition('.')[2].lower()}" in SUFFIXES and not name.startswith(".")
        ]
    return names
