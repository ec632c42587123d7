"""Crops against Pillow's own, pixel by pixel."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from pillow_images import from_pillow, sample_images, to_pillow

from foster.data.augmentation.geometry import crop, resized_crop, windows

SIZES = [(32, 32), (48, 64), (7, 10)]  # height, width


@pytest.mark.parametrize("is_flipped", [(0,) * 9, (1,) * 9, (0, 1, 1, 0, 1, 0, 0, 0, 1)], ids=str)
def test_a_crop_is_a_window_of_the_image_in_its_black_border(is_flipped: tuple[int, ...]) -> None:
    images = sample_images(7, 10)[:9]
    offsets = [(top, left) for top in (0, 1, 4) for left in (0, 2, 3)]
    places = windows(np.array(offsets), np.array(is_flipped), width=10, padding=2)
    result = crop(images, torch.from_numpy(places), padding=2)
    for image, (top, left), is_mirrored, actual in zip(images, offsets, is_flipped, result, strict=True):
        # Pillow's crop fills what lies outside the image with black.
        expected = to_pillow(image).crop((left - 2, top - 2, left - 2 + 10, top - 2 + 7))
        if is_mirrored:
            expected = ImageOps.mirror(expected)
        assert torch.equal(actual, from_pillow(expected))


def test_a_crop_without_a_border_only_mirrors() -> None:
    images = sample_images(7, 10)[:3]
    places = windows(np.zeros((3, 2), np.int64), np.array([1, 0, 1]), width=10, padding=0)
    result = crop(images, torch.from_numpy(places), padding=0)
    expected = [ImageOps.mirror(to_pillow(images[0])), to_pillow(images[1]), ImageOps.mirror(to_pillow(images[2]))]
    assert torch.equal(result, torch.stack([from_pillow(image) for image in expected]))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_resized_crop_equals_pillow(size: tuple[int, int]) -> None:
    height, width = size
    images = sample_images(height, width)[:8]
    boxes = torch.tensor([(0, 0, height, width), (1, 2, 3, 4), (height - 1, width - 1, 1, 1), (0, 3, height, 5)] * 2)
    result = resized_crop(images, boxes)
    for image, (top, left, rows, columns), actual in zip(images, boxes.tolist(), result, strict=True):
        part = to_pillow(image).crop((left, top, left + columns, top + rows))
        expected = from_pillow(part.resize((width, height), Image.Resampling.BILINEAR))
        assert (actual.int() - expected.int()).abs().max() == 0
