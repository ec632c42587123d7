"""Datasets in folders: ImageNet, its subset of 100 classes, and photos of one's own.

A `Tree` has the file names of each class.
"""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foster.data.photos.decode import SUFFIXES
from foster.data.photos.find import class_name, natural_order, read_text, shown, some
from foster.errors import DataError, explained
from foster.seeding import Address, generator
from foster.settings.datasets import Asked
from foster.system.counts import counted

NUM_CLASSES, NUM_OF_SUBSET, SUBSET_SEED = 1000, 100, 1993
TEST_NAMES = ("test", "val", "validation")
TASKS = "tasks"


@dataclass(frozen=True)
class Tree:
    """The photos of each class: their file names, relative to a folder of the class."""

    title: str
    folders: Mapping[str, Path]
    names: Mapping[str, Sequence[str]]

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.names)

    def of(self, class_names: Sequence[str]) -> "Tree":
        """The tree of these classes, in this order. Raises DataError for a class without photos."""
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
        """Divide into two trees. The second has `share` of each class, chosen by the seed: at least one photo, never
        all."""
        first, second = {}, {}
        random = generator(Address(seed, "test photos"))
        for name, files in self.names.items():
            if len(files) < 2:
                raise DataError(f"class '{name}' has {len(files)} photo in {self.title}, too few to test on one")
            count = min(max(1, round(len(files) * share)), len(files) - 1)
            chosen = set(torch.randperm(len(files), generator=random)[:count].tolist())
            second[name] = [file for k, file in enumerate(files) if k in chosen]
            first[name] = [file for k, file in enumerate(files) if k not in chosen]
        return Tree(self.title, self.folders, first), Tree(self.title, self.folders, second)


def read_tree(folder: Path, only: Iterable[str] | None = None) -> Tree:
    """The class folders in a folder; with `only`, these class folders, all of which must exist."""
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
    empty = [name for name, files in names.items() if not files]
    if empty:
        what = counted(len(empty), "class folder")
        raise DataError(f"{what} in {title} without a photo: {some(empty)}; remove or fill what is empty")
    return Tree(title, folders, names)


def _photos_below(folder: Path) -> list[str]:
    """The paths of all photos below a folder, relative to it, sorted."""
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


def imagenet_trees(folder: Path, is_subset: bool) -> tuple[Tree, Tree]:
    """Training and test photos: `train/WNID/*.JPEG`, and `val/WNID/*.JPEG` or `val/*.JPEG` with a published list."""
    root = next((path for path in (folder, folder / "imagenet", folder / "ILSVRC2012") if _has(path, "train")), None)
    if root is None:
        raise DataError(
            f"ImageNet is not in '{shown(folder)}': it should hold train/WNID/*.JPEG and val/WNID/*.JPEG or val/*.JPEG "
            f"and one of {', '.join(LISTS)}; download it from image-net.org and name its folder with data=FOLDER"
        )
    all_names = sorted(entry.name for entry in (root / "train").iterdir() if entry.is_dir())
    names = _subset(all_names, root) if is_subset else all_names
    if not is_subset and len(names) != NUM_CLASSES:
        raise DataError(
            f"'{shown(root / 'train')}' has {len(names)} class folders, not {NUM_CLASSES:,}; a part of ImageNet is "
            "dataset=imagenet100 or dataset=folder"
        )
    train = read_tree(root / "train", names)
    has_folders = any(_has(root / "val", name) for name in all_names)
    test = read_tree(root / "val", names) if has_folders else _flat_validation(root)
    return train.of(names), test.of(names)


def subset_names(all_names: list[str]) -> list[str]:
    """ImageNet-100 as in the public toolkits: the first 100 of the sorted classes, shuffled with the seed 1993."""
    order = np.random.RandomState(SUBSET_SEED).permutation(NUM_CLASSES)[:NUM_OF_SUBSET]
    return sorted(all_names[k] for k in order)


def _subset(all_names: list[str], root: Path) -> list[str]:
    if len(all_names) == NUM_OF_SUBSET:
        return all_names
    if len(all_names) != NUM_CLASSES:
        raise DataError(
            f"'{shown(root / 'train')}' has {len(all_names)} class folders: ImageNet-100 needs all "
            f"{NUM_CLASSES:,} classes of ImageNet, or exactly its own {NUM_OF_SUBSET}"
        )
    return subset_names(all_names)


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_dir()


def _flat_validation(root: Path) -> Tree:
    """The photos of a flat `val` folder by class, from a published list."""
    title = f"'{shown(root / 'val')}'"
    if not _has(root, "val"):
        raise DataError(f"there is no folder {title} of test photos")
    paths = [folder / name for name in LISTS for folder in (root, root / "val", root / "data")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataError(f"{title} has no class folders, and none of {', '.join(LISTS)} lies beside it")
    files = sorted(entry.name for entry in (root / "val").iterdir() if entry.suffix.lower() in SUFFIXES)
    try:
        classes = LISTS[path.name](path, files)
    except (KeyError, IndexError, ValueError, OSError) as error:
        raise DataError(f"'{shown(path)}' does not give the classes of the photos in {title}: {error}") from None
    names: dict[str, list[str]] = {}
    for file, name in zip(files, classes, strict=True):
        names.setdefault(name, []).append(file)
    return Tree(title, dict.fromkeys(names, root / "val"), {name: names[name] for name in sorted(names)})


def _of_solution(path: Path, files: list[str]) -> list[str]:
    """Lines `ImageId,WNID x y x y ...`, as published on Kaggle."""
    rows = csv.reader(read_text(path, shown(path), "CSV").splitlines())
    table = {row[0]: row[1].split()[0] for row in rows if len(row) > 1 and row[1].startswith("n")}
    return [table[Path(name).stem] for name in files]


def _of_ground_truth(path: Path, files: list[str]) -> list[str]:
    """One number a line, for the sorted photos; `meta.mat` of the development kit has the class of each number."""
    from scipy.io import loadmat

    paths = [folder / "meta.mat" for folder in (path.parent, path.parent / "data")]
    meta = next((file for file in paths if file.is_file()), None)
    if meta is None:
        raise ValueError("meta.mat of the development kit is missing beside it")
    synsets: Any = loadmat(str(meta), squeeze_me=True)["synsets"]
    table = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
    numbers = [int(line) for line in read_text(path, shown(path)).split()]
    if len(numbers) != len(files):
        raise ValueError(f"{len(numbers)} lines for {len(files)} photos")
    return [table[number] for number in numbers]


LISTS: dict[str, Callable[[Path, list[str]], list[str]]] = {
    "LOC_val_solution.csv": _of_solution,
    "ILSVRC2012_validation_ground_truth.txt": _of_ground_truth,
}
"""The published lists of the classes of a flat `val` folder."""


def folder_trees(folder: Path, test_share: float, seed: int) -> tuple[Tree, Tree]:
    """Photos of one's own: `train` and `test` folders, or one tree and a share for testing."""
    if not folder.is_dir():
        raise DataError(f"there is no folder '{shown(folder)}' of photos; name theirs with data=FOLDER")
    has_train = _has(folder, "train")
    train = read_tree(folder / "train" if has_train else folder)
    test_name = next((name for name in TEST_NAMES if _has(folder, name)), None)
    if test_name and has_train:
        test = read_tree(folder / test_name)
    elif test_share:
        train, test = train.divided(test_share, seed)
    else:
        raise DataError(
            f"there are no test photos beside {train.title}: set photos.test_share=0.2 to test on a fifth of them, or "
            "give a 'test' folder"
        )
    for name in test.class_names:
        if name not in train.names:
            raise DataError(f"class '{name}' has photos in {test.title}, but none to train on in {train.title}")
    return train, test.of(train.class_names)


def trees(name: str, asked: Asked) -> tuple[list[Tree], list[Tree]]:
    """The training and the test photos of a dataset: one tree each, or one for each folder of a task."""
    folder = asked.folder
    if name == "folder":
        places = task_folders(folder) or [folder]
        pairs = [folder_trees(place, asked.photos.test_share, asked.seed) for place in places]
    else:
        pairs = [imagenet_trees(folder, is_subset=name == "imagenet100")]
    return [train for train, _ in pairs], [test for _, test in pairs]


def task_folders(folder: Path) -> list[Path]:
    """The folders tasks/1, tasks/2, ... in `folder`, in order; empty if there is no folder `tasks`."""
    if not _has(folder, TASKS):
        return []
    names = [entry.name for entry in (folder / TASKS).iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return [folder / TASKS / name for name in sorted(names, key=natural_order)]


def names_of(trees: Sequence[Tree]) -> tuple[str, ...]:
    """The classes of all trees, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for tree in trees for name in tree.class_names))
