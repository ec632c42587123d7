"""Tiny ImageNet as published: 200 classes of ImageNet, JPEG files of 64 x 64 pixels."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from foster.data.download import find_or_fetch
from foster.data.images import ImageSet
from foster.data.sources import Request
from foster.errors import DataError, explained, words_of

SIDE = 64


def read_tiny_imagenet(request: Request) -> tuple[ImageSet, ImageSet]:
    """The training photos `train/WNID/images/*.JPEG`, and as test photos `val/images/*.JPEG` with the classes of
    `val/val_annotations.txt`: the published test photos have no labels. Classes are sorted by WNID.
    """
    assert request.facts.published is not None
    folder = find_or_fetch(request.facts.published, request.folder, request.follower)
    with explained(DataError, f"cannot read {folder}"):
        names = tuple(sorted((folder / "wnids.txt").read_text(encoding="utf-8").split()))
        train = [(path, name) for name in names for path in sorted((folder / "train" / name / "images").iterdir())]
        rows = [line.split() for line in (folder / "val" / "val_annotations.txt").read_text("utf-8").splitlines()]
    test = [(folder / "val" / "images" / row[0], row[1]) for row in rows]
    return _read(train, names), _read(test, names)


def _read(photos: Sequence[tuple[Path, str]], names: tuple[str, ...]) -> ImageSet:
    ids = {name: class_id for class_id, name in enumerate(names)}
    images = torch.empty(len(photos), 3, SIDE, SIDE, dtype=torch.uint8)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for place, pixels in enumerate(pool.map(_pixels, [path for path, _ in photos])):
            images[place] = torch.from_numpy(pixels).permute(2, 0, 1)
    return ImageSet(images, torch.tensor([ids[name] for _, name in photos], dtype=torch.int64), names)


def _pixels(path: Path) -> NDArray[np.uint8]:
    """One photo, `[64, 64, 3]`; some files are grey."""
    try:
        with Image.open(path) as photo:
            return np.array(photo.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path} cannot be read: {words_of(error)}") from None
