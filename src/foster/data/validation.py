"""A validation part of the training images, for choosing settings without looking at the test images."""

import torch

from foster.data.herding import positions_by_class, random_selection
from foster.data.images import ImageSet
from foster.errors import DataError
from foster.seeding import Address, generator


def hold_out(images: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """`images` in two parts, the second with `share` of every class (at least one image, never all)."""
    random = generator(Address(seed, "validation"))
    is_held_out = torch.zeros(len(images), dtype=torch.bool)
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        if len(positions) < 2:
            raise DataError(
                f"class '{images.class_names[class_id]}' has {len(positions)} images, too few to hold one out"
            )
        count = num_held_out(len(positions), share)
        is_held_out[positions[random_selection(len(positions), count, random)]] = True
    return images.select(~is_held_out), images.select(is_held_out)


def num_held_out(num_images: int, share: float) -> int:
    """How many images of a class are held out: `share` of them, at least one, never all."""
    return min(max(1, round(num_images * share)), num_images - 1)
