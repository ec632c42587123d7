"""CIFAR-10 and CIFAR-100 as published. The files are pickles; a restricted unpickler reads them without executing
code."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.download import check_md5, find_or_fetch
from foster.data.images import ImageSet
from foster.data.sources import Request
from foster.errors import DataError, words_of

_IMAGE_SHAPE = (3, 32, 32)


def read_cifar(request: Request) -> tuple[ImageSet, ImageSet]:
    """The training and the test images; missing files are downloaded into the data folder."""
    published = request.facts.published
    assert published is not None
    folder = find_or_fetch(published, request.folder, request.follower)
    for name, md5 in published.files.items():
        check_md5(folder / name, md5)
    contents = {name: read_pickle(folder / name) for name in published.files}
    (meta,) = (content for name, content in contents.items() if "meta" in name)
    kind = "fine_" if "fine_label_names" in meta else ""  # CIFAR-100 also has coarse labels
    class_names = tuple(map(_text, meta[f"{kind}label_names"]))

    def images(batches: Sequence[dict[str, Any]]) -> ImageSet:
        pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, *_IMAGE_SHAPE)
        labels = [label for batch in batches for label in batch[f"{kind}labels"]]
        return ImageSet(torch.from_numpy(pixels), torch.tensor(labels), class_names)

    test = [content for name, content in contents.items() if name.startswith("test")]
    train = [content for name, content in contents.items() if not name.startswith("test") and "meta" not in name]
    return images(train), images(test)


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
