"""The images that come with scikit-learn, read from its files: importing it takes longer than most tests."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def _folder() -> Path:
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("datasets")


@cache
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels `[1797, 64]` from 0 to 16, and labels, as `sklearn.datasets.load_digits` returns them."""
    rows = np.loadtxt(_folder() / "data" / "digits.csv.gz", delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


@cache
def photos() -> list[NDArray[np.uint8]]:
    """Two photos `[427, 640, 3]`, as `sklearn.datasets.load_sample_images` returns them."""
    return [np.asarray(Image.open(_folder() / "images" / name)) for name in ("china.jpg", "flower.jpg")]
