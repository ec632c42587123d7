"""Unlabeled images for compression."""

from pathlib import Path

import pytest
import torch
from photo_folders import write_classes
from PIL import Image

from foster.data.sources import load
from foster.data.unlabeled import _resized, load_unlabeled, num_unlabeled
from foster.errors import DataError, SettingsError


def test_a_dataset_gives_its_training_images_without_labels_and_names() -> None:
    found = load_unlabeled("synthetic", (16, 16), None)
    expected = load("synthetic").train
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.labels, torch.full((len(expected),), -1))
    assert found.class_names == ()


def test_images_of_another_size_are_resized() -> None:
    found = load_unlabeled("synthetic", (12, 20), None)
    assert found.images.shape[2:] == (12, 20)
    assert found.images.dtype == torch.uint8
    means = [images.float().mean().item() for images in (found.images, load("synthetic").train.images)]
    assert means[0] == pytest.approx(means[1], rel=0.05)


def test_a_much_smaller_image_keeps_something_of_every_pixel() -> None:
    lines = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    lines[..., ::4] = 255  # which lie between the places that plain interpolation looks at
    small = _resized(lines, (4, 4))
    assert small.float().mean().item() == pytest.approx(255 / 4, rel=0.2)


def test_a_folder_gives_all_images_below_it(tmp_path: Path) -> None:
    for name, colour in (("a.png", (255, 0, 0)), ("deep/er/b.png", (0, 0, 255))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), colour).save(tmp_path / name)
    found = load_unlabeled(str(tmp_path), (8, 8), None)
    assert found.labels.tolist() == [-1, -1]
    assert sorted(found.images[:, :, 4, 4].tolist()) == [[0, 0, 255], [255, 0, 0]]


def test_what_is_neither_a_dataset_nor_a_folder_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"foster\.unlabeled: 'digit' .*'digits'"):
        load_unlabeled("digit", (8, 8), None, key="foster.unlabeled")
    for refused in (load_unlabeled, lambda name, size, data, key: num_unlabeled(name, key)):
        with pytest.raises(SettingsError, match=r"foster\.unlabeled: .*'imagenet100'"):
            refused("imagenet100", (8, 8), None, key="foster.unlabeled")
    with pytest.raises(DataError, match=r"no images .* below"):
        load_unlabeled(str(tmp_path), (8, 8), None)


def test_unlabeled_images_of_a_folder_go_through_the_same_reader(tmp_path: Path) -> None:
    write_classes(tmp_path, x=5)
    (tmp_path / "x" / "0.png").write_bytes(b"broken")
    found = load_unlabeled(str(tmp_path), (8, 8), None)
    assert found.images.shape == (4, 3, 8, 8)
    assert found.labels.tolist() == [-1] * 4
