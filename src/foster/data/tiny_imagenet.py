"""Tiny ImageNet as published: 200 classes of ImageNet, JPEG files of 64 x 64 pixels."""

from collections.abc import Sequence
from pathlib import Path

import torch

from foster.data.download import find_or_fetch
from foster.data.images import ImageSet
from foster.data.photos.decode import Resizing, decoded
from foster.data.sources import Request
from foster.errors import DataError, explained

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
    for batch in decoded([path for path, _ in photos], Resizing(SIDE, SIDE)):
        for position, reason in batch.unreadable.items():
            raise DataError(f"{photos[position][0]} cannot be read: {reason}")
        images[list(batch.results)] = torch.stack(list(batch.results.values()))
    return ImageSet(images, torch.tensor([ids[name] for _, name in photos], dtype=torch.int64), names)
