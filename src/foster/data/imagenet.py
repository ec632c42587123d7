"""Datasets in folders: ImageNet, its subset of 100 classes, and photos of one's own.

Photos are only listed here. They are decoded when a task needs them.
"""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.herding import random_selection
from foster.data.images import ImageSet
from foster.data.photos.decode import SUFFIXES
from foster.data.photos.find import class_name, natural_order, read_text, shown
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import PhotoLoader
from foster.data.scenario import num_held_out
from foster.data.sources import Request
from foster.errors import DataError, explained
from foster.seeding import Address, generator
from foster.system.counts import counted
from foster.system.output import listed

NUM_CLASSES, NUM_OF_SUBSET, SUBSET_SEED = 1000, 100, 1993
TEST_NAMES = ("test", "val", "validation")
TASKS = "tasks"

Paths = Mapping[str, Sequence[str]]
"""The paths of the photos of each class, by the name of the class."""


def read_trees(request: Request) -> tuple[ImageSet, ImageSet]:
    """The photos of ImageNet, of its subset, or of one's own folders. With folders of tasks, `beside["task"]` has the
    task of each photo."""
    folder, photos, name = request.folder, request.photos, request.facts.name
    if name == "folder":
        pairs = [own_photos(task, photos.test_share, request.seed) for task in task_folders(folder) or [folder]]
    else:
        pairs = [imagenet_photos(folder, is_subset=name == "imagenet100")]
    class_names = tuple(dict.fromkeys(name for train, _ in pairs for name in train))
    loader = request.loader or PhotoLoader(photos.image_size, photos.kept_side)

    def images(tasks: Sequence[Paths], what: str) -> ImageSet:
        classes = [(task, name, paths) for task, by_name in enumerate(tasks) for name, paths in by_name.items()]
        counts = torch.tensor([len(paths) for _, _, paths in classes])
        labels = torch.tensor([class_names.index(name) for _, name, _ in classes]).repeat_interleave(counts)
        of_task = torch.tensor([task for task, _, _ in classes]).repeat_interleave(counts)
        stack = PhotoStack.of([path for _, _, paths in classes for path in paths], loader, what)
        return ImageSet(stack, labels, class_names, {"task": of_task} if len(tasks) > 1 else {})

    trains, tests = zip(*pairs, strict=True)
    return images(trains, "the training photos"), images(tests, "the test photos")


def task_folders(folder: Path) -> list[Path]:
    """The folders tasks/1, tasks/2, ... in `folder`, in order; empty if there is no folder `tasks`."""
    if not _has(folder, TASKS):
        return []
    names = [entry.name for entry in (folder / TASKS).iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return [folder / TASKS / name for name in sorted(names, key=natural_order)]


def own_photos(folder: Path, test_share: float, seed: int) -> tuple[Paths, Paths]:
    """Training and test photos of a user: from the folders `train` and `test`, or from one tree that is divided."""
    if not folder.is_dir():
        raise DataError(f"there is no folder '{shown(folder)}' of photos; set data=FOLDER")
    has_train = _has(folder, "train")
    place = folder / "train" if has_train else folder
    train = class_folders(place)
    test_name = next((name for name in TEST_NAMES if _has(folder, name)), None)
    if test_name and has_train:
        test = class_folders(folder / test_name)
    elif test_share:
        return divided(train, test_share, seed)
    else:
        raise DataError(
            f"there are no test photos beside '{shown(place)}': set photos.test_share=0.2 to test on a fifth of them, "
            "or give a 'test' folder"
        )
    _in_order(train, test, place)  # no class is only tested
    return train, _in_order(test, train, folder / test_name)


def _in_order(photos: Paths, names: Iterable[str], folder: Path) -> Paths:
    """The photos of these classes, in this order. Raises DataError if a class has no photos in `folder`."""
    if missing := [name for name in names if name not in photos]:
        raise DataError(f"no photos of {listed(missing)} in '{shown(folder)}'")
    return {name: photos[name] for name in names}


def divided(photos: Paths, share: float, seed: int) -> tuple[Paths, Paths]:
    """Divide the photos in two. The second part has `share` of each class, chosen by the seed: at least one photo,
    never all."""
    first, second = {}, {}
    random = generator(Address(seed, "test photos"))
    for name, paths in photos.items():
        if len(paths) < 2:
            raise DataError(f"class '{name}' has one photo, '{paths[0]}': too few to train and to test")
        chosen = set(random_selection(len(paths), num_held_out(len(paths), share), random).tolist())
        second[name] = [path for k, path in enumerate(paths) if k in chosen]
        first[name] = [path for k, path in enumerate(paths) if k not in chosen]
    return first, second


def class_folders(folder: Path, only: Iterable[str] | None = None) -> Paths:
    """The photos of the class folders in a folder; with `only`, of these class folders, all of which must exist."""
    title = f"'{shown(folder)}'"
    with explained(DataError, f"cannot read {title}"):
        entries = sorted((entry.name for entry in os.scandir(folder) if entry.is_dir()), key=natural_order)
    entries = [entry for entry in entries if not entry.startswith(".")]
    if only is not None:
        wanted = set(only)
        if missing := sorted(wanted - set(entries)):
            raise DataError(f"{len(missing)} of {len(wanted)} class folders are missing in {title}: {listed(missing)}")
        entries = [entry for entry in entries if entry in wanted]
    if not entries:
        raise DataError(f"{title} holds no folders; there must be one with photos for each class")
    photos: dict[str, list[str]] = {}
    for entry in entries:
        photos.setdefault(class_name(entry, title), []).extend(_photos_below(folder / entry))
    if empty := [name for name, paths in photos.items() if not paths]:
        what = counted(len(empty), "class folder")
        raise DataError(f"{what} in {title} without a photo: {listed(empty)}; remove or fill what is empty")
    return photos


def _photos_below(folder: Path) -> list[str]:
    """The paths of all photos below a folder, sorted: those of each folder before those of its subfolders."""
    paths = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [
            f"{parent}/{name}"
            for name in sorted(files)
            if f".{name.rpartition('.')[2].lower()}" in SUFFIXES and not name.startswith(".")
        ]
    return paths


def imagenet_photos(folder: Path, is_subset: bool) -> tuple[Paths, Paths]:
    """Training and test photos: `train/WNID/*.JPEG`, and `val/WNID/*.JPEG` or `val/*.JPEG` with a published list."""
    root = next((path for path in (folder, folder / "imagenet", folder / "ILSVRC2012") if _has(path, "train")), None)
    if root is None:
        raise DataError(
            f"ImageNet is not in '{shown(folder)}': it should hold train/WNID/*.JPEG and val/WNID/*.JPEG or val/*.JPEG "
            f"and one of {', '.join(LISTS)}; download it from image-net.org and name its folder with data=FOLDER"
        )
    all_names = sorted(entry.name for entry in (root / "train").iterdir() if entry.is_dir())
    if len(all_names) not in ((NUM_CLASSES, NUM_OF_SUBSET) if is_subset else (NUM_CLASSES,)):
        own = f" or exactly the {NUM_OF_SUBSET} of ImageNet-100" if is_subset else ""
        raise DataError(
            f"'{shown(root / 'train')}' has {len(all_names)} class folders, and this dataset needs all "
            f"{NUM_CLASSES:,} of ImageNet{own}; for a part of ImageNet, choose dataset=imagenet100 or dataset=folder"
        )
    names = subset_names(all_names) if len(all_names) == NUM_CLASSES and is_subset else all_names
    train = class_folders(root / "train", names)
    has_folders = any(_has(root / "val", name) for name in all_names)
    test = class_folders(root / "val", names) if has_folders else _flat_validation(root)
    return _in_order(train, names, root / "train"), _in_order(test, names, root / "val")


def subset_names(all_names: list[str]) -> list[str]:
    """ImageNet-100 as in the public toolkits: the first 100 of the sorted classes, shuffled with the seed 1993."""
    order = np.random.RandomState(SUBSET_SEED).permutation(NUM_CLASSES)[:NUM_OF_SUBSET]
    return sorted(all_names[k] for k in order)


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_dir()


def _flat_validation(root: Path) -> Paths:
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
    photos: dict[str, list[str]] = {}
    for file, name in zip(files, classes, strict=True):
        photos.setdefault(name, []).append(f"{root / 'val'}/{file}")
    return photos


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
