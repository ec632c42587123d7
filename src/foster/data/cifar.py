"""CIFAR-10 and CIFAR-100 as published. The files are pickles; a restricted unpickler reads them without executing
code."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.download import Follower, check_md5, find_or_fetch
from foster.data.images import ImageSet
from foster.errors import DataError, words_of
from foster.settings.datasets import Published

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
    for name, md5 in published.files.items():
        check_md5(folder / name, md5)
    class_names = tuple(map(_text, read_pickle(folder / layout.names_file)[layout.names_key]))

    def read(names: Sequence[str]) -> ImageSet:
        batches = [read_pickle(folder / name) for name in names]
        images = np.concatenate([batch["data"] for batch in batches]).reshape(-1, *_IMAGE_SHAPE)
        labels = [label for batch in batches for label in batch[layout.labels_key]]
        return ImageSet(torch.from_numpy(images), torch.tensor(labels), class_names)

    return read(layout.train_files), read(layout.test_files)


_ARRAY_PARTS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
}
"""The only names that an unpickled file may use: the parts of a NumPy array."""


class _CifarUnpickler(pickle.Unpickler):
    """An unpickler that imports nothing and allows only `_ARRAY_PARTS`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"refused: it names {f'{module}.{name}'[:80]!r}")
        return _ARRAY_PARTS[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with keys as text; other strings of Python 2 are bytes."""
    try:
        with path.open("rb") as file:
            content = _CifarUnpickler(file, encoding="bytes").load()
        return {_text(key): value for key, value in content.items()}
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"{path} is not a CIFAR file: {words_of(error)}") from error


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
