"""AutoAugment's operations without kernels, and brightness."""

import numpy as np
import torch
from PIL import Image, ImageEnhance
from pillow_images import from_pillow, sample_images, to_pillow

from foster.data.augmentation.operations import OPERATIONS, brighten, by_pillow

NAMES = list(OPERATIONS)


def rotated_over_grey(image: Image.Image, degrees: float) -> Image.Image:
    """As the public port of AutoAugment rotates."""
    rotated = image.convert("RGBA").rotate(degrees)
    return Image.composite(rotated, Image.new("RGBA", rotated.size, (128,) * 4), rotated).convert("RGB")


def test_each_image_has_its_own_operations_and_magnitudes_and_the_input_stays() -> None:
    images = sample_images(7, 10)[:4]
    before, rotate, contrast = images.clone(), NAMES.index("Rotate"), NAMES.index("Contrast")
    operations = [[-1, -1], [rotate, -1], [rotate, -1], [rotate, contrast]]
    found = by_pillow(images, operations, [[0, 0], [9, 0], [-9, 0], [9, 1]])
    turned = [rotated_over_grey(to_pillow(one), degrees) for one, degrees in zip(images[1:], (9, -9, 9), strict=True)]
    turned[2] = ImageEnhance.Contrast(turned[2]).enhance(2)
    assert torch.equal(found, torch.stack([images[0], *map(from_pillow, turned)]))
    assert torch.equal(images, before)


def test_solarize_inverts_what_is_not_below_its_threshold() -> None:
    every, threshold = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(1, 3, 1, 1), 1024 / 9
    found = by_pillow(every, [[NAMES.index("Solarize")]], [[threshold]])
    assert torch.equal(found, torch.where(every < threshold, every, 255 - every))
    assert OPERATIONS["Solarize"].prepare(np.array([threshold]), 16, 16)[0, 0] == 114, "for the kernel"


def test_brighten_equals_pillow() -> None:
    images = sample_images(32, 32)
    factors = torch.linspace(0, 2.5, len(images))
    expected = [
        from_pillow(ImageEnhance.Brightness(to_pillow(image)).enhance(float(factor)))
        for image, factor in zip(images, factors, strict=True)
    ]
    assert torch.equal(brighten(images, factors), torch.stack(expected))
