"""Photos in groups of equal size, whatever their homes are."""

import pytest
import torch

from foster.data.photos.strata import NUM_STRATA, most_strata, num_strata, strata


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
