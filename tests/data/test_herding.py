"""Which images represent a class: herding against a plain greedy reference, and random selection."""

import pytest
import torch
from herding_reference import greedy_reference, herding, random_features

from foster.data.herding import herding_by_class, random_selection
from foster.seeding import Address, generator


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(2))
def test_herding_equals_a_plain_greedy_reference(seed: int, dtype: torch.dtype) -> None:
    features = random_features(60, 16, seed, dtype)
    assert herding(features, 40).tolist() == greedy_reference(features.numpy(), 40)


def test_herding_takes_the_first_of_equal_features() -> None:
    # Every vector twice, the copies far apart, so that rounding by position would show.
    half = random_features(37, 128, seed=3, dtype=torch.float32)
    chosen = herding(torch.cat([half, half]), 74).tolist()
    for position in range(37):
        assert chosen.index(position) < chosen.index(position + 37)
    assert herding(torch.ones(5, 3), 4).tolist() == [0, 1, 2, 3]


def test_herding_accepts_one_image_none_at_all_and_zero_features() -> None:
    assert herding(torch.ones(1, 3), 5).tolist() == [0]
    assert herding(torch.ones(0, 3), 5).tolist() == []
    assert herding(torch.ones(4, 3), 0).tolist() == []
    with_zero_row = torch.cat([torch.zeros(1, 8), random_features(9, 8, seed=1, dtype=torch.float32)])
    assert herding(with_zero_row, 10).tolist() == greedy_reference(with_zero_row.numpy(), 10)


def test_herding_of_several_classes_equals_herding_each_alone() -> None:
    # Uneven classes, two smaller than the count, one absent, unlabeled images between, ids out of order.
    labels = torch.tensor([3, 0, -1, 7, 0, 3, 3, 0, 3] * 9)[
        torch.randperm(81, generator=generator(Address(0, "labels")))
    ]
    features = random_features(81, 32, seed=8, dtype=torch.float32)
    chosen = herding_by_class(features, labels, [7, 0, 5, 3], 30)
    assert [len(positions) for positions in chosen] == [9, 27, 0, 30]
    for class_id, positions in zip([7, 0, 5, 3], chosen, strict=True):
        members = torch.nonzero(labels == class_id).squeeze(1)
        assert positions.tolist() == members[herding(features[members], 30)].tolist()
    assert herding_by_class(features, labels, [], 30) == []


def test_random_selection_has_no_repeats_and_depends_on_its_generator_alone() -> None:
    first = random_selection(50, 20, generator(Address(1, "memory")))
    again = random_selection(50, 20, generator(Address(1, "memory")))
    other = random_selection(50, 20, generator(Address(2, "memory")))
    assert first.tolist() == again.tolist() != other.tolist()
    assert len(set(first.tolist())) == 20
    assert sorted(random_selection(4, 9, generator(Address(1, "memory"))).tolist()) == [0, 1, 2, 3]
