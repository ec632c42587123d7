"""Hashes of images: equal where the images are, wherever and however they are kept."""

import torch

from foster.data.images import ImageSet, images_digest
from foster.data.photos.decode import Resizing
from foster.data.photos.store import PhotoStack, learner_loader


def images(*values: int, labels: tuple[int, ...] | None = None) -> ImageSet:
    pixels = torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    return ImageSet(pixels.contiguous(), torch.tensor(labels or range(len(values))), ())


def test_a_digest_depends_on_pixels_labels_and_order_and_not_on_the_layout() -> None:
    plain = images(1, 2, 3)
    assert images_digest(None) == ""
    spread = ImageSet(plain.images.contiguous(memory_format=torch.channels_last), plain.labels, ())
    assert images_digest(spread) == images_digest(plain)
    others = (images(1, 2, 4), images(2, 1, 3), images(1, 2, 3, labels=(0, 0, 1)), images(1, 2))
    assert len({images_digest(plain), *map(images_digest, others)}) == 5


def test_the_same_bytes_in_another_shape_are_other_images() -> None:
    wide = torch.zeros(2, 3, 2, 8, dtype=torch.uint8)
    square = ImageSet(wide.view(2, 3, 4, 4), torch.arange(2), ())
    assert images_digest(ImageSet(wide, torch.arange(2), ())) != images_digest(square)


def test_no_photos_have_a_digest_as_well() -> None:
    photos = PhotoStack.of([], learner_loader(Resizing(96, 96, "crop")), "none")
    assert images_digest(ImageSet(photos, torch.empty(0, dtype=torch.int64), ())) != images_digest(images(1))
