"""Crops against Pillow's own, pixel by pixel."""

import numpy as np
import pytest
import torch
from PIL import ImageOps
from pillow_images import from_pillow, sample_images, to_pillow

from foster.data.augmentation.geometry import crop, windows


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
