"""Unlabeled images for training: the training images of a dataset without labels, or a folder of images."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import interpolate

from foster.data.download import Follower
from foster.data.images import ImageSet
from foster.data.photos.decode import SUFFIXES, Resizing
from foster.data.photos.find import Photos, find_files
from foster.data.photos.store import read_photos
from foster.data.sources import load
from foster.errors import DataError, SettingsError, suggestion
from foster.settings.datasets import CATALOGUE, Asked
from foster.system.files import user_path


def load_unlabeled(
    source: str,
    image_size: tuple[int, int],
    data_dir: Path | None,
    warn: Callable[[str], None] = lambda message: None,
    follower: Follower | None = None,
    key: str = "unlabeled",
) -> ImageSet:
    """Images `[N, 3, *image_size]` with label -1, from a dataset by name or from all images below a folder.

    Files that cannot be read are left out, with a call of `warn`. `follower` observes a download. `key` is the setting
    that names the source, for messages.
    """
    if _is_dataset(source, key):
        images = _resized(load(source, Asked(data_dir=data_dir), follower).train.images, image_size)
    else:
        photos = read_photos(_photos(source, key), Resizing(*image_size), max_unreadable=sys.maxsize)
        images = photos.images
        if photos.unreadable:
            first, count = photos.unreadable[0], len(photos.unreadable)
            warn(f"{key}: {count} unreadable images are left out, such as '{first.name}': {first.reason}")
    return ImageSet(images, torch.full((len(images),), -1), ())


def num_unlabeled(source: str, key: str = "unlabeled") -> int:
    """The number of images, without reading them."""
    return CATALOGUE[source].num_train if _is_dataset(source, key) else len(_photos(source, key))


def _is_dataset(source: str, key: str) -> bool:
    """Whether `source` is the name of a dataset; its images must all have the same size."""
    if source in CATALOGUE and CATALOGUE[source].photo_augmentations:
        raise SettingsError(
            f"{key}: the photos of '{source}' are of many sizes; name a folder of them, such as ./photos"
        )
    return source in CATALOGUE


def _photos(source: str, key: str) -> Photos:
    folder = user_path(source)
    if not folder.is_dir():
        hint = suggestion(source, CATALOGUE)
        raise SettingsError(f"{key}: '{source}' is neither a folder nor a dataset{hint}")
    files = find_files(folder).images
    if not files:
        raise DataError(f"{key}: no images ({', '.join(sorted(SUFFIXES))}) below '{folder}'")
    return Photos(files, ("",) * len(files), f"'{folder}'")


def _resized(images: torch.Tensor, image_size: tuple[int, int]) -> torch.Tensor:
    if tuple(images.shape[2:]) == image_size:
        return images
    smooth = interpolate(images.float(), size=image_size, mode="bilinear", antialias=True, align_corners=False)
    return smooth.round().clamp(0, 255).to(torch.uint8)
