"""A store decodes each photo once, ahead of time where it is told to expect that."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from photo_folders import files_of

from foster.data.photos import darkroom as darkroom_module
from foster.data.photos import encoded
from foster.data.photos.cache import Strip
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.store import NUM_STRATA, PhotoStore, most_strata, num_strata, strata


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the files are that were decoded."""
    lengths: list[int] = []
    decode = encoded.pixels_of

    def counted(content: bytes, side: int) -> NDArray[Any]:
        lengths.append(len(content))
        return decode(content, side)

    monkeypatch.setattr(encoded, "pixels_of", counted)
    return lengths


def all_pixels(store: PhotoStore, numbers: NDArray[np.int64]) -> torch.Tensor:
    return torch.cat([store.pixels(number).flatten() for number in numbers.tolist()])


@pytest.mark.parametrize("together", [1, 4, 100])
def test_photos_that_were_expected_are_decoded_once_and_are_the_same(
    folder: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(darkroom_module, "DEVELOPED_TOGETHER", together)
    monkeypatch.setattr(darkroom_module, "DEVELOPED_AT_ONCE", 6)
    plain, ahead = (PhotoStore(files_of(folder), Darkroom(32, 40)) for _ in range(2))
    numbers = np.array([12, 3, 4, 5, 9, 1, 2, 0, 14])
    plain.survey(numbers)
    num_decoded = len(decoded)
    ahead.expect(numbers)
    ahead.survey(numbers)
    assert len(decoded) == 2 * num_decoded == 18
    assert np.array_equal(ahead.sizes, plain.sizes)
    assert np.array_equal(ahead.is_developed, plain.is_developed)
    assert torch.equal(all_pixels(ahead, numbers), all_pixels(plain, numbers))


def test_expecting_other_photos_than_are_asked_for_does_no_harm(folder: Path) -> None:
    plain, ahead = (PhotoStore(files_of(folder), Darkroom(32, 40)) for _ in range(2))
    numbers = np.array([2, 0, 14])
    plain.survey(numbers)
    ahead.expect(np.arange(5))
    ahead.survey(numbers)
    assert torch.equal(all_pixels(ahead, numbers), all_pixels(plain, numbers))
    assert ahead.is_developed.sum() == 3


class Chunk:
    """Pixels somewhere in the memory of a device, as far as a store asks."""

    def __init__(self, address: int, device: str = "cuda:0") -> None:
        self.address = address
        self.device = torch.device(device)

    def data_ptr(self) -> int:
        return self.address


def test_the_address_of_a_photo_is_where_its_chunk_begins_also_after_more_have_come(folder: Path) -> None:
    store, there = PhotoStore(files_of(folder), Darkroom(32, 40)), torch.device("cuda", 0)

    def keep(positions: list[int], offsets: list[int], chunk: Chunk) -> None:
        rows = np.array(positions)
        store.keep(Strip(rows, np.full((len(rows), 2), 4), np.array(offsets), cast(torch.Tensor, chunk), {}))

    first = Chunk(1000)
    keep([4, 0], [0, 48], first)
    assert store.addresses(np.array([4]), torch.device("cuda", 1)) is None
    assert cast(NDArray[np.int64], store.addresses(np.array([0, 4, 0]), there)).tolist() == [1048, 1000, 1048]
    keep([2], [96], first)
    keep([7, 1], [0, 48], Chunk(5000))
    assert cast(NDArray[np.int64], store.addresses(np.array([1, 2, 7]), there)).tolist() == [5048, 1096, 5000]
    keep([3], [0], Chunk(7000, "cpu"))
    assert store.addresses(np.array([1]), there) is None, "not all are there"


def test_nothing_waits_where_there_is_no_room_or_a_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = files_of(folder)
    assert Darkroom(32, 40, cache=tmp_path).ahead(photos) is None
    monkeypatch.setattr(darkroom_module, "_available_memory", lambda: 1000.0)
    assert Darkroom(32, 40).ahead(photos) is None


@pytest.mark.parametrize(
    ("num_photos", "batch_size", "expected"),
    [(10_000, 128, 32), (10_000, 48, 16), (10_000, 7, 1), (255, 128, 16), (15, 128, 1), (16, 128, 2)],
)
def test_there_are_as_many_as_divide_the_batch_and_hold_eight_photos(
    num_photos: int, batch_size: int, expected: int
) -> None:
    assert num_strata(num_photos, batch_size) == expected
    assert most_strata(batch_size) == num_strata(10_000, batch_size)


@pytest.mark.parametrize("count", [1, 2, 8, 32])
@pytest.mark.parametrize("num_photos", [32, 67, 100])
def test_every_photo_is_in_one_group_and_the_groups_are_equal(num_photos: int, count: int) -> None:
    for homes in (
        torch.randint(NUM_STRATA, (num_photos,), generator=torch.Generator().manual_seed(0)),
        torch.zeros(num_photos, dtype=torch.int64),
    ):
        groups = strata(homes, count)
        assert sorted(torch.cat(groups).tolist()) == list(range(num_photos))
        sizes = [len(group) for group in groups]
        assert max(sizes) - min(sizes) <= 1


def test_a_photo_stays_at_home_where_there_is_room() -> None:
    homes = torch.arange(NUM_STRATA).repeat(4)
    for group, positions in enumerate(strata(homes, 8)):
        assert (homes[positions] * 8 // NUM_STRATA == group).all()
