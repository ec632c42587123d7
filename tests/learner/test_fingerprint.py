"""Fingerprints: equal where the same would be learned, and in words where not."""

from typing import Any

import torch

from foster.data.images import ImageSet
from foster.data.photos.album import Album
from foster.data.photos.developing import learners_darkroom
from foster.data.photos.encoded import PhotoBytes
from foster.data.photos.resize import Resizing
from foster.learner.fingerprint import difference, images_digest
from foster.settings.learner import learner_settings


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


def of(known: str = "", pictures: str = "a", unlabeled: str = "", **settings: Any) -> dict[str, Any]:
    nested = learner_settings(**settings).nested()
    return {"settings": nested, "known": known, "images": pictures, "unlabeled": unlabeled}


def test_what_differs_is_told_in_words() -> None:
    assert difference(of(), of()) is None
    assert difference(of(seed=1), of(seed=2)) == "with seed = 1, which is 2 now"
    assert difference(of(foster={"beta_boost": 0.5}), of()) is not None
    assert difference(of(known="x"), of(known="y")) == "from another bundle"
    assert difference(of(pictures="a"), of(pictures="b")) == "of other images"
    assert difference(of(unlabeled="a"), of()) == "with other unlabeled images"


def test_where_it_computes_makes_no_difference() -> None:
    assert difference(of(device="cpu"), of(device="cuda")) is None


def test_no_photos_have_a_digest_as_well() -> None:
    album = Album.of(PhotoBytes([]), learners_darkroom(Resizing(96, 96, "crop")), "none")
    assert images_digest(ImageSet(album, torch.empty(0, dtype=torch.int64), ())) != images_digest(images(1))
