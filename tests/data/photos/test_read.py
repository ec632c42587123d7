"""Images as they come: every kind of file reaches the network as the picture that a person sees."""

from pathlib import Path

import numpy as np
import pytest
import torch
from photo_folders import write_classes
from PIL import Image

from foster.data.photos.read import measured_sizes, read_photos
from foster.data.photos.resize import Resizing, typical_side
from foster.data.photos.sources import find_photos
from foster.errors import DataError


def test_unreadable_images_are_listed_and_left_out(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=3, dog=3)
    (folder / "cat" / "1.png").write_bytes(b"broken")
    found = read_photos(find_photos(folder), Resizing(8, 8))
    assert found.labels == ("cat", "cat", "dog", "dog", "dog")
    assert found.images.shape == (5, 3, 8, 8)
    assert [(entry.name, entry.reason) for entry in found.unreadable] == [
        (str(folder / "cat" / "1.png"), "not an image of a known format")
    ]


def test_too_many_unreadable_images_stop_the_reading(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=12)
    for k in range(4):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"stopped at 4 unreadable of 12 images .*\(limit 3\).*raise max_unreadable"):
        read_photos(find_photos(folder), Resizing(8, 8))
    assert len(read_photos(find_photos(folder), Resizing(8, 8), max_unreadable=4).images) == 8


def test_no_readable_image_at_all_is_said_without_advice_that_does_not_help(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=2)
    for k in range(2):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"none of the 2 images in .* can be read: '.*0\.png': not an image") as error:
        read_photos(find_photos(folder), Resizing(8, 8))
    assert "max_unreadable" not in str(error.value)


def test_results_keep_the_given_order_over_many_threads_and_chunks() -> None:
    images = np.zeros((600, 4, 4, 3), np.uint8)
    images[:] = (np.arange(600) % 256)[:, None, None, None]
    found = read_photos(find_photos((images, ["a"] * 600)), Resizing(4, 4))
    assert torch.equal(found.images[:, 0, 0, 0], torch.arange(600).remainder(256).to(torch.uint8))


def test_a_set_that_cannot_fit_into_memory_is_refused_before_it_is_read() -> None:
    images = [np.zeros((4, 4), np.uint8)] * 20_000
    with pytest.raises(DataError, match=r"20,000 images of 4096 x 4096 need .* smaller image_size"):
        read_photos(find_photos((images, ["a"] * 20_000)), Resizing(4096, 4096))


def test_the_typical_side_is_the_median_of_the_shorter_sides(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, x=5)
    assert measured_sizes(find_photos(folder)) == ([(8, 6), (9, 6), (10, 6), (11, 6), (12, 6)], [])
    assert typical_side([(10, 99), (20, 30), (400, 300)]) == 20


def test_a_picture_of_a_few_pixels_is_left_out_and_named(tmp_path: Path) -> None:
    write_classes(tmp_path, cat=5)
    Image.new("RGB", (1, 1)).save(tmp_path / "cat" / "dot.png")
    read = read_photos(find_photos(tmp_path), Resizing(8, 8), max_unreadable=1)
    assert len(read.images) == 5
    assert [(Path(entry.name).name, entry.reason) for entry in read.unreadable] == [
        ("dot.png", "too small to show anything: 1 x 1 pixels")
    ]
