"""ImageNet from its published files, its subset of 100 classes, and folders of one's own photos."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foster.data.photos.decode import SUFFIXES
from foster.data.photos.find import natural_order, read_text, shown
from foster.data.photos.tree import Tree, check_same_classes, read_list, read_names, read_tree
from foster.errors import DataError
from foster.settings.datasets import CATALOGUE, Asked, DatasetFacts, PhotoSettings
from foster.system.files import user_path

NUM_CLASSES, NUM_OF_SUBSET, SUBSET_SEED = 1000, 100, 1993
TEST_NAMES = ("test", "val", "validation")
TASKS = "tasks"


def imagenet_trees(folder: Path, photos: PhotoSettings, is_subset: bool) -> tuple[Tree, Tree]:
    """Training and test photos: `train/WNID/*.JPEG`, and `val/WNID/*.JPEG` or the flat `val` with a published list."""
    root = next((path for path in (folder, folder / "imagenet", folder / "ILSVRC2012") if _has(path, "train")), None)
    if root is None:
        raise DataError(
            f"ImageNet is not in '{shown(folder)}': it should hold train/WNID/*.JPEG and val/WNID/*.JPEG or val/*.JPEG "
            f"and one of {', '.join(LISTS)}; download it from image-net.org and name its folder with data=FOLDER"
        )
    all_names = sorted(entry.name for entry in (root / "train").iterdir() if entry.is_dir())
    names = _subset(all_names, photos, root) if is_subset else all_names
    if not is_subset and len(names) != NUM_CLASSES:
        raise DataError(
            f"'{shown(root / 'train')}' has {len(names)} class folders, not {NUM_CLASSES:,}; a part of ImageNet is "
            "dataset=imagenet100 or dataset=folder"
        )
    train = read_tree(root / "train", names)
    has_folders = any(_has(root / "val", name) for name in all_names)
    test = read_tree(root / "val", names) if has_folders else _flat_validation(root, all_names)
    return train.of(names), test.of(names)


def subset_names(all_names: list[str]) -> list[str]:
    """The field's ImageNet-100: the first 100 of the 1,000 sorted classes as the seed 1993 shuffles them."""
    order = np.random.RandomState(SUBSET_SEED).permutation(NUM_CLASSES)[:NUM_OF_SUBSET]
    return sorted(all_names[k] for k in order)


def _subset(all_names: list[str], photos: PhotoSettings, root: Path) -> list[str]:
    if photos.subset:
        return sorted(read_names(user_path(photos.subset)))
    if len(all_names) == NUM_OF_SUBSET:
        return all_names
    if len(all_names) != NUM_CLASSES:
        raise DataError(
            f"'{shown(root / 'train')}' has {len(all_names)} class folders: the 100 classes are chosen from all "
            f"{NUM_CLASSES:,}, or are all that is there, or are named by photos.subset=FILE"
        )
    return subset_names(all_names)


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_dir()


def _flat_validation(root: Path, all_names: list[str]) -> Tree:
    """The photos of `val` by their class, from a published list beside it or in it."""
    title = f"'{shown(root / 'val')}'"
    if not _has(root, "val"):
        raise DataError(f"there is no folder {title} of test photos")
    paths = [folder / name for name in LISTS for folder in (root, root / "val", root / "data")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataError(f"{title} has no class folders, and none of {', '.join(LISTS)} lies beside it")
    files = sorted(entry.name for entry in (root / "val").iterdir() if entry.suffix.lower() in SUFFIXES)
    try:
        classes = LISTS[path.name](path, files, all_names)
    except (KeyError, IndexError, ValueError, OSError) as error:
        raise DataError(f"'{shown(path)}' does not tell the classes of the photos in {title}: {error}") from None
    names: dict[str, list[str]] = {}
    for file, name in zip(files, classes, strict=True):
        names.setdefault(name, []).append(file)
    return Tree(title, dict.fromkeys(names, root / "val"), {name: names[name] for name in sorted(names)})


def _of_solution(path: Path, files: list[str], all_names: list[str]) -> list[str]:
    """Lines of `ImageId,WNID x y x y ...`."""
    rows = csv.reader(read_text(path, shown(path), "CSV").splitlines())
    table = {row[0]: row[1].split()[0] for row in rows if len(row) > 1 and row[1].startswith("n")}
    return [table[Path(name).stem] for name in files]


def _of_labels(path: Path, files: list[str], all_names: list[str]) -> list[str]:
    """Lines of a file name and the place of its class among the sorted ones."""
    table = dict(line.split() for line in read_text(path, shown(path)).splitlines() if line.strip())
    return [all_names[int(table[name])] for name in files]


def _of_ground_truth(path: Path, files: list[str], all_names: list[str]) -> list[str]:
    """A number on each line, for the sorted photos; `meta.mat` of the development kit says which class it means."""
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


LISTS: dict[str, Callable[[Path, list[str], list[str]], list[str]]] = {
    "LOC_val_solution.csv": _of_solution,
    "val.txt": _of_labels,
    "ILSVRC2012_validation_ground_truth.txt": _of_ground_truth,
}
"""The lists that say which class a photo of the flat `val` folder has, as they are published in several places."""


def folder_trees(folder: Path, photos: PhotoSettings, seed: int) -> tuple[Tree, Tree]:
    """Photos of one's own: two lists, `train` and `test` folders, or one tree of which a share is for testing."""
    if not folder.is_dir():
        raise DataError(f"there is no folder '{shown(folder)}' of photos; name theirs with data=FOLDER")
    only = read_names(user_path(photos.subset)) if photos.subset else None

    def listed(path: str) -> Tree:
        tree = read_list(user_path(path), folder)
        return tree.of(sorted(only, key=natural_order)) if only else tree

    name = next((name for name in TEST_NAMES if _has(folder, name)), None)
    if photos.train_list:
        train = listed(photos.train_list)
    else:
        train = read_tree(folder / "train" if _has(folder, "train") else folder, only)
    if photos.test_list:
        test = listed(photos.test_list)
    elif name and not photos.train_list and _has(folder, "train"):
        test = read_tree(folder / name, only)
    else:
        train, test = train.divided(_share(photos, train.title), seed)
    check_same_classes(train, test)
    return train, test.of(train.class_names)


def _share(photos: PhotoSettings, name: str) -> float:
    if not photos.test_share:
        raise DataError(
            f"there are no test photos beside {name}: set photos.test_share=0.2 to test on a fifth of them, or give a "
            "'test' folder or photos.test_list"
        )
    return photos.test_share


def survey(facts: DatasetFacts, asked: Asked) -> DatasetFacts:
    """The facts as the folders tell them, or for a subset of ImageNet the list of its classes."""
    if facts.name == "imagenet100":
        published = CATALOGUE[facts.name]
        num_classes = len(read_names(user_path(asked.photos.subset)))
        train, test = (
            num_classes * round(count / published.num_classes) for count in (published.num_train, published.num_test)
        )
        return replace(facts, num_classes=num_classes, num_train=train, num_test=test)
    to_train, to_test = trees(facts.name, asked.folder, asked.photos, asked.seed)
    seen = [names_of(to_train[: task + 1]) for task in range(len(to_train))]
    counts = [
        tuple(len(tree.names.get(name, ())) for name in names) for tree, names in zip(to_train, seen, strict=True)
    ]
    num_train, num_test = (sum(map(len, of_tasks)) for of_tasks in (to_train, to_test))
    tasks = tuple(counts) if len(to_train) > 1 else ()
    return replace(facts, num_classes=len(seen[-1]), num_train=num_train, num_test=num_test, tasks=tasks)


def trees(name: str, folder: Path, photos: PhotoSettings, seed: int) -> tuple[list[Tree], list[Tree]]:
    """The training and the test photos of a dataset in `folder`; for each task, where that has folders of tasks."""
    if name == "folder":
        tasks = [] if photos.train_list else task_folders(folder)
        pairs = [folder_trees(own, photos, seed) for own in tasks or [folder]]
    else:
        pairs = [imagenet_trees(folder, photos, is_subset=name == "imagenet100")]
    return [train for train, _ in pairs], [test for _, test in pairs]


def task_folders(folder: Path) -> list[Path]:
    """The folders tasks/1, tasks/2, ... in `folder`, in order; none where there is no folder `tasks`."""
    if not _has(folder, TASKS):
        return []
    names = [entry.name for entry in (folder / TASKS).iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return [folder / TASKS / name for name in sorted(names, key=natural_order)]


def names_of(trees: Sequence[Tree]) -> tuple[str, ...]:
    """The classes of all trees, in the order in which they first come."""
    return tuple(dict.fromkeys(name for tree in trees for name in tree.class_names))
