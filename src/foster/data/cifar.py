"""CIFAR-10 and CIFAR-100 as published. The files are pickles: only files with the published MD5 sums are read."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.download import Follower, check_md5, complete_folder, find_or_fetch
from foster.data.images import ImageSet
from foster.settings.datasets import Asked, DatasetFacts, Published

_IMAGE_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class CifarLayout:
    """The names of the files, and the keys of their dictionaries."""

    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    names_file: str
    names_key: str
    labels_key: str


LAYOUTS = {
    "cifar10": CifarLayout(
        train_files=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        test_files=("test_batch",),
        names_file="batches.meta",
        names_key="label_names",
        labels_key="labels",
    ),
    "cifar100": CifarLayout(
        train_files=("train",),
        test_files=("test",),
        names_file="meta",
        names_key="fine_label_names",
        labels_key="fine_labels",
    ),
}


def load_cifar(
    layout: CifarLayout, published: Published, data_dir: Path, follower: Follower | None = None
) -> tuple[ImageSet, ImageSet]:
    """The training and the test images; missing files are downloaded into `data_dir`."""
    folder = find_or_fetch(published, data_dir, follower)
    class_names = _class_names(layout, published, folder)

    def read(names: Sequence[str]) -> ImageSet:
        batches = [read_pickle(folder, name, published) for name in names]
        images = np.concatenate([batch["data"] for batch in batches]).reshape(-1, *_IMAGE_SHAPE)
        labels = [label for batch in batches for label in batch[layout.labels_key]]
        return ImageSet(torch.from_numpy(images), torch.tensor(labels), class_names)

    return read(layout.train_files), read(layout.test_files)


def survey(facts: DatasetFacts, asked: Asked) -> DatasetFacts:
    """The facts with the class names, if the published files are there."""
    assert facts.published is not None
    folder = complete_folder(facts.published, asked.folder)
    return replace(facts, class_names=_class_names(LAYOUTS[facts.name], facts.published, folder)) if folder else facts


def _class_names(layout: CifarLayout, published: Published, folder: Path) -> tuple[str, ...]:
    return tuple(map(_text, read_pickle(folder, layout.names_file, published)[layout.names_key]))


def read_pickle(folder: Path, name: str, published: Published) -> dict[str, Any]:
    """The dictionary in a published file, with keys as text; other strings of Python 2 are bytes.

    Raises DataError before reading a file that is not, byte for byte, the published one.
    """
    check_md5(folder / name, published.files[name])
    content = pickle.loads((folder / name).read_bytes(), encoding="bytes")
    return {_text(key): value for key, value in content.items()}


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
