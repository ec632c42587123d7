"""Folders of small JPEG photos of mixed sizes and orientations, a few of them broken; a class is a coarse pattern."""

import io
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from foster.data.photos.find import find_files

TURNED_BACK = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""What undoes the turn that each EXIF orientation asks for."""


def photo(class_id: int, number: int, sides: tuple[int, int] = (40, 90), orientation: int = 1) -> bytes:
    """A JPEG of class `class_id` whose sides lie between `sides`; it looks the same whatever its orientation tag."""
    chance = np.random.default_rng((class_id, number))
    pattern = np.random.default_rng(class_id).integers(0, 256, (4, 4, 3))
    noisy = np.clip(pattern + chance.normal(0, 25, pattern.shape), 0, 255).astype(np.uint8)
    width, height = (int(side) for side in chance.integers(*sides, 2))
    image = Image.fromarray(noisy).resize((width, height), Image.Resampling.BICUBIC)
    turn = TURNED_BACK[orientation]
    image = image if turn is None else image.transpose(turn)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    target = io.BytesIO()
    image.save(target, "JPEG", quality=90, **({} if orientation == 1 else {"exif": exif}))
    return target.getvalue()


def write_photos(
    folder: Path, num_classes: int, per_class: int, first: int = 0, sides: tuple[int, int] = (40, 90), broken: int = 0
) -> Path:
    """`folder/class K/N.jpg`, the photos numbered from `first` on; the last `broken` of class 0 are cut short."""
    for class_id in range(num_classes):
        class_folder = folder / f"class {class_id}"
        class_folder.mkdir(parents=True)
        for number in range(per_class):
            content = photo(class_id, first + number, sides, (1, 3, 6, 8)[number % 4])
            is_broken = class_id == 0 and number >= per_class - broken
            (class_folder / f"{number}.jpg").write_bytes(content[: len(content) // 3] if is_broken else content)
    return folder


def write_dataset(folder: Path, num_classes: int = 6, per_class: int = 12, broken: int = 2) -> Path:
    """`folder/train/CLASS/...` and `folder/test/CLASS/...`."""
    write_photos(folder / "train", num_classes, per_class, broken=broken)
    write_photos(folder / "test", num_classes, 4, first=1000, broken=1 if broken else 0)
    return folder


def write_classes(folder: Path, **counts: int) -> Path:
    """Red photos in a subfolder for each class, 8, 9, ... pixels wide and 6 high."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.new("RGB", (8 + k, 6), (255, 0, 0)).save(folder / name / f"{k}.png")
    return folder


def files_of(folder: Path) -> list[str]:
    """The paths of all photos in the subfolders of `folder`."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return [str(path) for class_folder in folders for path in find_files(class_folder).images]
