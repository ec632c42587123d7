"""Nearness to classes: their spread counts, and what all photos have in common does not."""

import torch
from torch import Tensor

from foster.learner.feature_space import FeatureSpace


def features(count: int, seed: int, num_classes: int = 2) -> tuple[Tensor, Tensor]:
    """Classes that lie apart along the first axes, and spread most along the last."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % num_classes
    noise = torch.randn(count, 6, generator=chance) * torch.tensor([0.05, 0.05, 0.05, 0.05, 0.05, 0.8])
    return torch.eye(6)[labels] + 3 * torch.eye(6)[4] + noise, labels


def test_a_distance_counts_by_how_much_photos_of_a_class_differ() -> None:
    space, means = FeatureSpace.fitted(*features(200, 0))
    plain = torch.eye(6)[0] + 3 * torch.eye(6)[4]
    usual, strange = plain + 0.4 * torch.eye(6)[5], plain + 0.4 * torch.eye(6)[2]
    near = space.nearness(torch.stack([plain, usual, strange]), means)
    assert near[2] < near[1] - 10 * (near[0] - near[1]).abs()


def test_what_is_between_the_classes_is_farther_than_either() -> None:
    given, labels = features(200, 0)
    space, means = FeatureSpace.fitted(given, labels)
    between = (given[labels == 0] + given[labels == 1]) / 2
    assert space.nearness(between, means).max() < space.nearness(given, means).min()


def test_nearness_is_that_of_two_gaussians() -> None:
    given, labels = features(60, 1)
    space, means = FeatureSpace.fitted(given, labels)
    unit = torch.nn.functional.normalize(given).double()
    within = unit - torch.stack([unit[labels == k].mean(0) for k in (0, 1)])[labels]
    around = unit - unit.mean(0)

    def distances(points: Tensor, sample: Tensor) -> Tensor:
        covariance = sample.T @ sample / len(sample)
        shrunk = 0.4 * covariance + 0.6 * covariance.diagonal().mean() * torch.eye(6)
        return (points @ torch.linalg.inv(shrunk) * points).sum(1)

    to_classes = [distances(unit - unit[labels == k].mean(0), within) for k in (0, 1)]
    expected = distances(around, around) - torch.minimum(*to_classes)
    torch.testing.assert_close(space.nearness(given, means), expected.float(), atol=1e-3, rtol=1e-4)


def test_one_class_alone_and_one_photo_of_each_class_are_numbers() -> None:
    given, labels = features(50, 2, num_classes=1)
    space, means = FeatureSpace.fitted(given, labels)
    near = space.nearness(torch.cat([given, torch.eye(6)[:2]]), means)
    assert near[:50].min() > near[50:].max()
    alone, few = FeatureSpace.fitted(given[:3], torch.arange(3))
    assert bool(alone.nearness(given, few).isfinite().all())
    again = FeatureSpace.of({**space.tensors(), "means": means})
    assert again is not None
    assert torch.equal(again.nearness(given, means), space.nearness(given, means))
    assert FeatureSpace.of({"means": means}) is None
