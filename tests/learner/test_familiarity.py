"""Unknown things: nearly all known photos are answered, and strange ones look less familiar."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from foster.learner.familiarity import (
    KEPT_SHARE,
    Familiarity,
    FeatureSpace,
    _share_below,
    _threshold,
    _usual,
    _usual_for_others,
    auroc,
)


def photos(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, features and labels of photos of three classes."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=chance)
    features = 4 * torch.eye(8)[labels] + torch.rand(count, 8, generator=chance)
    return (features[:, :3] * 2).softmax(1), features, labels


@pytest.fixture
def familiarity() -> Familiarity:
    _, features, labels = photos(60, 0)
    found = Familiarity.fitted(features, labels, photos(200, 1)[:2])
    assert found is not None
    return found


def test_it_answers_the_promised_share_of_known_photos(familiarity: Familiarity) -> None:
    held_out = familiarity.scores(*photos(200, 1)[:2])
    assert (held_out >= familiarity.threshold).float().mean() == pytest.approx(KEPT_SHARE, abs=0.01)
    others = familiarity.scores(*photos(500, 2)[:2])
    assert (others >= familiarity.threshold).float().mean() == pytest.approx(KEPT_SHARE, abs=0.04)


def test_few_held_out_photos_keep_the_promise_too() -> None:
    _, features, labels = photos(60, 0)
    others, kept = photos(500, 2)[:2], []
    for seed in range(40):
        found = Familiarity.fitted(features, labels, photos(24, 100 + seed)[:2])
        assert found is not None
        kept.append(float((found.scores(*others) >= found.threshold).float().mean()))
    assert sum(kept) / len(kept) > KEPT_SHARE  # the quantile of their own scores would keep 0.91
    assert sum(share >= KEPT_SHARE - 0.05 for share in kept) >= 0.9 * len(kept)


@pytest.mark.parametrize(("num_images", "lowest"), [(18, 0.0), (20, 0.05), (200, 9.05), (10_000, 499.05)])
def test_the_threshold_by_hand(num_images: int, lowest: float) -> None:
    """n = 200: 0.05 of the 201 parts that 200 photos make is 10.05, a twentieth of the way from the tenth photo on."""
    assert _threshold(torch.arange(num_images, dtype=torch.float64)) == pytest.approx(lowest, abs=1e-6)


def test_what_is_usual_for_others_is_what_is_usual_without_the_photo() -> None:
    values = torch.tensor([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    for k, quantiles in enumerate(_usual_for_others(values)):
        torch.testing.assert_close(quantiles, _usual(values[torch.arange(6) != k]), atol=1e-4, rtol=1e-5)
    same = _usual_for_others(torch.full((30,), 0.1))
    assert same.isfinite().all()
    torch.testing.assert_close(same, torch.full((30, 101), 0.1))
    for seed in range(20):
        sure, strange = 2 * torch.rand(2, generator=torch.Generator().manual_seed(seed))
        without_strange = _usual_for_others(torch.cat([sure.expand(29), strange[None]]))[-1]
        torch.testing.assert_close(without_strange, sure.expand(101), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(_usual(values)[50], values.mean())


def test_the_threshold_is_of_photos_that_had_no_part_in_what_is_usual() -> None:
    (_, features, labels), (probability, spared, _) = photos(60, 0), photos(24, 1)
    probability[0] = torch.tensor([1.0, 0.0, 0.0])  # as sure as can be
    found = Familiarity.fitted(features, labels, (probability, spared))
    assert found is not None
    sure, near, scores = probability.amax(1).logit(eps=1e-6), found.nearness(spared), []
    for k in range(24):
        others = torch.arange(24) != k
        usual = replace(found, confidences=_usual(sure[others]).sigmoid(), nearnesses=_usual(near[others]))
        scores.append(usual.scores(probability[k : k + 1], spared[k : k + 1]))
    assert found.threshold == pytest.approx(_threshold(torch.cat(scores)), rel=1e-3)


def test_a_value_stands_among_others_where_they_say_and_beyond_them_it_still_has_an_order() -> None:
    quantiles = torch.linspace(2, 4, 101)
    shares = _share_below(quantiles, torch.tensor([1.0, 1.5, 2.0, 2.005, 3.0, 3.99, 4.0, 9.0]))
    torch.testing.assert_close(shares, torch.tensor([-0.5, -0.25, 0.0, 0.0025, 0.5, 0.995, 1.0, 1.0]))
    assert _share_below(torch.ones(101), torch.tensor([0.5, 1.0, 2.0])).isfinite().all()


def test_photos_that_are_sure_but_far_from_every_class_are_strange(familiarity: Familiarity) -> None:
    probability, _, _ = photos(100, 3)
    features = torch.rand(100, 8, generator=torch.Generator().manual_seed(4)) + 4 * torch.eye(8)[7]
    strange = familiarity.scores(probability, features)
    assert (strange < familiarity.threshold).float().mean() > 0.9
    assert auroc(familiarity.scores(*photos(100, 5)[:2]), strange) > 0.95


def test_it_survives_a_bundle(familiarity: Familiarity) -> None:
    again = Familiarity.of({**familiarity.tensors(), "head.weight": torch.zeros(1)})
    assert again is not None
    some = photos(20, 6)[:2]
    assert torch.equal(again.scores(*some), familiarity.scores(*some))
    assert again.threshold == pytest.approx(familiarity.threshold)
    assert Familiarity.of({"head.weight": torch.zeros(1)}) is None


def test_too_few_photos_say_nothing() -> None:
    _, features, labels = photos(60, 0)
    assert Familiarity.fitted(features, labels, photos(19, 1)[:2]) is None


def test_auroc_counts_pairs() -> None:
    assert auroc(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0])) == pytest.approx((2 + 0 + 0.5) / 4)


def test_a_photo_that_is_unsure_of_its_class_is_strange_however_near_it_is(familiarity: Familiarity) -> None:
    probability, features, _ = photos(100, 3)
    unsure = familiarity.scores(torch.full_like(probability, 1 / 3), features)
    assert (unsure < familiarity.threshold).all()


def test_merged_classes_keep_their_means_and_forgotten_ones_are_strange(familiarity: Familiarity) -> None:
    probability, features, labels = photos(200, 1)
    staying = labels != 1
    held_out = probability[staying], features[staying]
    regrouped = familiarity.regrouped([(0, 2)], held_out)
    assert regrouped is not None
    assert regrouped.owners.tolist() == [0, 0]
    assert torch.equal(regrouped.means, familiarity.means[[0, 2]])
    assert (regrouped.scores(*held_out) >= regrouped.threshold).float().mean() == pytest.approx(KEPT_SHARE, abs=0.02)
    assert (regrouped.scores(probability, features)[~staying] < regrouped.threshold).all()
    assert familiarity.regrouped([(0,)], (probability[:5], features[:5])) is None, "too few"


def test_a_class_without_images_has_no_mean() -> None:
    _, features, labels = photos(60, 0)
    found = Familiarity.fitted(features, 2 * labels, photos(200, 1)[:2])
    assert found is not None
    assert found.owners.tolist() == [0, 2, 4]
    assert all(bool(value.isfinite().all()) for value in found.tensors().values())
    assert found.regrouped([(1,), (3,)], photos(200, 1)[:2]) is None


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


@pytest.mark.parametrize("num_classes", [1, 3])
def test_directions_in_which_trained_photos_do_not_differ_count_together_as_they_would_alone(
    num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, features, labels = photos(60, 0)
    features[:, 4:] = 0
    strange = photos(20, 1)[1]
    every = FeatureSpace.fitted(features, labels % num_classes)
    monkeypatch.setattr("foster.learner.familiarity.NUM_AXES", 4)
    few = FeatureSpace.fitted(features, labels % num_classes)
    assert few[0].axes.shape == (8, 4)
    torch.testing.assert_close(
        few[0].nearness(strange, few[1]), every[0].nearness(strange, every[1]), rtol=1e-4, atol=0.01
    )


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
