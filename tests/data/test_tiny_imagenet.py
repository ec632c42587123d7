"""Tiny ImageNet in its published layout, with fewer photos."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from foster.data.images import ImageSet
from foster.data.sources import Request
from foster.data.tiny_imagenet import read_tiny_imagenet
from foster.errors import DataError
from foster.settings.datasets import CATALOGUE, Published

FILES = CATALOGUE["tinyimagenet"].published
WNIDS = ("n02124075", "n01443537")
COLOURS = {"n02124075": (200, 30, 30), "n01443537": (30, 200, 30)}


def read(source: Published, data_dir: Path) -> tuple[ImageSet, ImageSet]:
    return read_tiny_imagenet(Request(data_dir=data_dir, facts=replace(CATALOGUE["tinyimagenet"], published=source)))


def save(path: Path, colour: tuple[int, int, int], mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64), colour).convert(mode).save(path, format="JPEG")


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """The published facts; three training photos a class and two test photos are in `tmp_path`."""
    root = tmp_path / FILES.folder
    for wnid in WNIDS:
        for number in range(3):
            mode = "L" if number == 2 else "RGB"
            save(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", COLOURS[wnid], mode)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("0\t0\t62\t44\n")
    for number, wnid in enumerate(WNIDS):
        save(root / "val" / "images" / f"val_{number}.JPEG", COLOURS[wnid])
    rows = [f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62" for number, wnid in enumerate(WNIDS)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    return FILES


@pytest.mark.parametrize("given", ["folder", "parent"])
def test_photos_and_labels_are_read_with_classes_in_the_order_of_their_ids(
    published: Published, tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foster.data.photos.decode.DECODED_AT_ONCE", 4)
    train, test = read(published, tmp_path / published.folder if given == "folder" else tmp_path)
    assert train.class_names == test.class_names == ("n01443537", "n02124075")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 0, 1, 1, 1], [1, 0])
    assert train.images.shape == (6, 3, 64, 64)
    mean = train.images.float().mean((2, 3))
    torch.testing.assert_close(mean[0], torch.tensor([30.0, 200.0, 30.0]), atol=4, rtol=0)
    torch.testing.assert_close(mean[4], torch.tensor([200.0, 30.0, 30.0]), atol=4, rtol=0)
    assert len(set(mean[2].round().tolist())) == 1, "a grey photo has three equal channels"


def test_the_published_zip_is_unpacked_where_the_folder_is_missing(published: Published, tmp_path: Path) -> None:
    expected, _ = read(published, tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    with zipfile.ZipFile(new / published.archive, "w") as archive:
        for path in sorted((tmp_path / published.folder).rglob("*")):
            archive.write(path, path.relative_to(tmp_path))
    md5 = hashlib.md5((new / published.archive).read_bytes(), usedforsecurity=False).hexdigest()
    with pytest.raises(DataError, match="MD5"):
        read(published, new)
    train, _ = read(replace(published, archive_md5=md5), new)
    assert torch.equal(train.images, expected.images)
    assert sorted(path.name for path in new.iterdir() if path.is_dir()) == [published.folder]


def test_a_photo_that_cannot_be_read_is_named(published: Published, tmp_path: Path) -> None:
    path = tmp_path / published.folder / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_1.JPEG"
    path.write_bytes(b"no photo")
    with pytest.raises(DataError, match=path.name):
        read(published, tmp_path)
