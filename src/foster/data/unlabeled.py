"""Unlabeled images for compression: a dataset's training images without their labels, or a folder of images."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.nn.functional import interpolate

from foster.data.catalogue import CATALOGUE
from foster.data.images import ImageSet
from foster.data.sources import load
from foster.errors import DataError, SettingsError, suggestion

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"})


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
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise DataError(f"foster.unlabeled: no images ({', '.join(sorted(SUFFIXES))}) below '{folder}'")
    height, width = image_size
    images = torch.empty(len(paths), 3, height, width, dtype=torch.uint8)
    for position, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DataError(f"foster.unlabeled: cannot read image '{path}': {error}") from None
        images[position] = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    return images


def _resized(images: torch.Tensor, image_size: tuple[int, int]) -> torch.Tensor:
    if tuple(images.shape[2:]) == image_size:
        return images
    smooth = interpolate(images.float(), size=image_size, mode="bilinear", antialias=True, align_corners=False)
    return smooth.round().clamp(0, 255).to(torch.uint8)
