"""Photos as a learner takes them in: each with its id, and seen as the network sees it."""

from pathlib import Path

import pytest
import torch
from photo_folders import write_photos

from foster.data.images import ids_of, on_device
from foster.data.photos.album import Album
from foster.data.photos.developing import album_of, learners_darkroom, read_stack
from foster.data.photos.read import read_photos
from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos
from foster.errors import DataError

CPU = torch.device("cpu")
SIDE = 72


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of mixed sizes and orientations, one of them cut short."""
    return write_photos(tmp_path_factory.mktemp("photos") / "all", 2, 8, sides=(90, 160), broken=1)


@pytest.mark.parametrize("rule", ["crop", "stretch"])
def test_a_photo_has_the_id_of_what_the_network_sees_and_looks_like_it(photos: Path, rule: str) -> None:
    resizing = Resizing(SIDE, 2 * SIDE if rule == "stretch" else SIDE, rule)
    plain = read_photos(find_photos(photos), resizing)
    kept = read_stack(find_photos(photos), resizing)
    assert isinstance(kept.stack, Album)
    assert (kept.labels, kept.unreadable) == (plain.labels, plain.unreadable)
    assert len(kept.unreadable) == 1
    assert ids_of(kept.stack) == ids_of(plain.images)
    assert int(kept.stack.sizes.amin(1).max()) <= round(max(resizing.size) * 8 / 7)
    seen = on_device(kept.stack, CPU)
    assert seen.shape == plain.images.shape
    assert (seen.float() - plain.images.float()).abs().mean() < 3


def test_images_of_the_networks_size_are_seen_bit_by_bit() -> None:
    images = torch.randint(256, (3, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    album = album_of(images, learners_darkroom(Resizing(SIDE, SIDE, "crop")))
    assert torch.equal(on_device(album, CPU), images)
    assert ids_of(album) == ids_of(images)


def test_small_images_stay_tensors(photos: Path) -> None:
    assert isinstance(read_stack(find_photos(photos), Resizing(64, 64)).stack, torch.Tensor)


def test_too_many_unreadable_photos_are_refused_as_images_are(photos: Path) -> None:
    for resizing in (Resizing(16, 16), Resizing(SIDE, SIDE)):
        with pytest.raises(DataError, match=r"stopped at 1 unreadable of 16 images .*\(limit 0\)"):
            read_stack(find_photos(photos), resizing, max_unreadable=0)
