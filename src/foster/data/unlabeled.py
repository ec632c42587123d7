"""Unlabeled images for compression: a dataset's training images without their labels, or a folder of images."""

from pathlib import Path

import torch
from torch.nn.functional import interpolate

from foster.data.catalogue import CATALOGUE
from foster.data.decoding import SUFFIXES
from foster.data.images import ImageSet
from foster.data.photo_files import image_files
from foster.data.photos import Photos, read_photos
from foster.data.resizing import Resizing
from foster.data.sources import load
from foster.errors import DataError, SettingsError, suggestion


def load_unlabeled(source: str, image_size: tuple[int, int], data_dir: Path | None) -> ImageSet:
    """Images `[N, 3, *image_size]` with label -1, from a dataset by name or from all images below a folder."""
    if source in CATALOGUE:
        images = _resized(load(source, data_dir).train.images, image_size)
    elif Path(source).is_dir():
        images = _read_folder(Path(source), image_size)
    else:
        raise SettingsError(
            f"foster.unlabeled: '{source}' is neither a folder nor a dataset{suggestion(source, CATALOGUE)}"
        )
    return ImageSet(images, torch.full((len(images),), -1), ())


def _read_folder(folder: Path, image_size: tuple[int, int]) -> torch.Tensor:
    files = image_files(folder)
    if not files:
        raise DataError(f"foster.unlabeled: no images ({', '.join(sorted(SUFFIXES))}) below '{folder}'")
    photos = Photos(files, ("",) * len(files), f"'{folder}'")
    return read_photos(photos, Resizing(*image_size)).images


def _resized(images: torch.Tensor, image_size: tuple[int, int]) -> torch.Tensor:
    if tuple(images.shape[2:]) == image_size:
        return images
    smooth = interpolate(images.float(), size=image_size, mode="bilinear", antialias=True, align_corners=False)
    return smooth.round().clamp(0, 255).to(torch.uint8)
