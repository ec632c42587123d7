"""Photos as a learner takes them in: each with its id, and seen as the network sees it."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_folders import write_photos

from foster.data.images import ids_of, on_device
from foster.data.photos import developing
from foster.data.photos import store as store_module
from foster.data.photos.album import Album
from foster.data.photos.developing import album_of, learners_darkroom, read_stack
from foster.data.photos.read import ReadPhotos, read_photos
from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos
from foster.errors import DataError
from foster.system.crew import Crew

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
    assert isinstance(kept.images, Album)
    assert (kept.labels, kept.unreadable) == (plain.labels, plain.unreadable)
    assert len(kept.unreadable) == 1
    assert ids_of(kept.images) == ids_of(plain.images)
    assert int(kept.images.sizes.amin(1).max()) <= round(max(resizing.size) * 8 / 7)
    seen = on_device(kept.images, CPU)
    assert seen.shape == plain.images.shape
    assert (seen.float() - plain.images.float()).abs().mean() < 3


def test_images_of_the_networks_size_are_seen_bit_by_bit() -> None:
    images = torch.randint(256, (3, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    album = album_of(images, learners_darkroom(Resizing(SIDE, SIDE, "crop")))
    assert torch.equal(on_device(album, CPU), images)
    assert ids_of(album) == ids_of(images)


def test_small_images_stay_tensors(photos: Path) -> None:
    assert isinstance(read_stack(find_photos(photos), Resizing(64, 64)).images, torch.Tensor)


def test_too_many_unreadable_photos_are_refused_as_images_are(photos: Path) -> None:
    for resizing in (Resizing(16, 16), Resizing(SIDE, SIDE)):
        with pytest.raises(DataError, match=r"stopped at 1 unreadable of 16 images .*\(limit 0\)"):
            read_stack(find_photos(photos), resizing, max_unreadable=0)


def test_photos_in_a_file_of_the_cache_are_the_same_and_the_file_is_gone(photos: Path, tmp_path: Path) -> None:
    resizing = Resizing(SIDE, SIDE, "crop")
    plain = read_stack(find_photos(photos), resizing)
    darkroom = learners_darkroom(resizing, CPU, "disk", tmp_path)
    kept = read_stack(find_photos(photos), resizing, darkroom=darkroom)
    assert darkroom.chosen == "disk"
    assert torch.equal(on_device(kept.images, CPU), on_device(plain.images, CPU))
    assert list(tmp_path.iterdir()) == []


class TwoProcesses:
    """Two threads that believe to be processes: each has its rank, and hears what the other has found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._own = threading.local()
        self._found: dict[int, torch.Tensor] = {}
        self._both = threading.Barrier(2, timeout=60)
        for module in (developing, store_module):
            monkeypatch.setattr(module, "crew", lambda: Crew(getattr(self._own, "rank", 0), 2))
        monkeypatch.setattr(store_module, "gathered", self._gathered)

    def _gathered(self, own: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
        self._found[self._own.rank] = own
        self._both.wait()
        assert [len(self._found[rank]) for rank in range(2)] == list(counts)
        return [self._found[rank] for rank in range(2)]

    def read(self, photos: Path, resizing: Resizing, max_unreadable: int | None = None) -> list[ReadPhotos | DataError]:
        def one(rank: int) -> ReadPhotos | DataError:
            self._own.rank = rank
            try:
                return read_stack(find_photos(photos), resizing, max_unreadable)
            except DataError as error:
                return error

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(one, range(2)))


def test_each_of_two_processes_decodes_its_share_and_knows_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, resizing = write_photos(tmp_path / "photos", 2, 20, broken=1), Resizing(SIDE, SIDE, "crop")
    alone = read_stack(find_photos(photos), resizing)
    assert isinstance(alone.images, Album)
    both = TwoProcesses(monkeypatch)
    have = []
    for read in both.read(photos, resizing):
        assert isinstance(read, ReadPhotos)
        assert isinstance(read.images, Album)
        assert (read.labels, read.unreadable) == (alone.labels, alone.unreadable)
        assert read.images.ids() == alone.images.ids()
        assert torch.equal(read.images.sizes, alone.images.sizes)
        have.append(read.images._stores[0].is_developed.copy())
        # What else is needed here is decoded here, to the same pixels.
        assert torch.equal(on_device(read.images, CPU), on_device(alone.images, CPU))
    assert np.array_equal(have[0], ~have[1])
    assert have[0].any()
    assert have[1].any()
    (first, second) = both.read(photos, resizing, max_unreadable=0)
    assert isinstance(first, DataError)
    assert str(second) == str(first)
