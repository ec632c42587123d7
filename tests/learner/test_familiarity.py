"""Unknown things: nearly all known photos are answered, and strange ones look less familiar."""

import pytest
import torch
from torch import Tensor

from foster.learner.familiarity import KEPT_SHARE, Familiarity, _threshold
from foster.networks.statistics import Statistics


def photos(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, features and labels of photos of three classes."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=chance)
    features = 4 * torch.eye(8)[labels] + torch.rand(count, 8, generator=chance)
    return (features[:, :3] * 2).softmax(1), features, labels


def unit(features: Tensor) -> Tensor:
    return torch.nn.functional.normalize(features.double(), dim=1)


def learned(features: Tensor, labels: Tensor, num_classes: int) -> Statistics:
    return Statistics.empty(num_classes, features.shape[1]).added(unit(features), labels)


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
        kept.append(float((found.scores(*others) >= found.threshold).float().mean()))
    assert sum(kept) / len(kept) > KEPT_SHARE - 0.01
    assert sum(share >= KEPT_SHARE - 0.05 for share in kept) >= 0.85 * len(kept)


def many_features(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """More features than photos, as of few photos by a pretrained backbone: probabilities, features, labels."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4
    features = 0.8 * torch.eye(300)[labels] + 0.15 * torch.randn(count, 300, generator=chance) + 0.3
    confidence = 3 + torch.randn(count, 1, generator=chance)
    return (confidence * torch.eye(4)[labels]).softmax(1), features, labels


@pytest.mark.parametrize("count", [40, 160])
def test_photos_that_are_left_out_stand_for_new_ones(count: int) -> None:
    probability, features, labels = many_features(count, 0)
    found = Familiarity.left_out(learned(features, labels, 4), unit(features), labels, probability)
    new = found.scores(*many_features(1000, 1)[:2])
    assert (new >= found.threshold).double().mean() == pytest.approx(KEPT_SHARE, abs=0.05)


def test_what_is_left_out_is_as_near_as_the_other_photos_say() -> None:
    _, features, labels = many_features(40, 0)
    nothing = torch.zeros(2, 2)
    found = Familiarity(learned(features, labels, 4), nothing, 0.0)._left_out_nearness(unit(features), labels)
    expected = []
    for k in range(40):
        others = torch.arange(40) != k
        without = Familiarity(learned(features[others], labels[others], 4), nothing, 0.0)
        expected.append(float(without.nearness(features[k : k + 1])))
    spread = torch.tensor(expected).std()
    assert (found - torch.tensor(expected)).abs().max() < 0.2 * spread, "but for the trace of the covariances"


@pytest.mark.parametrize(("num_images", "lowest"), [(18, 0.0), (20, 0.05), (200, 9.05), (10_000, 499.05)])
def test_the_threshold_by_hand(num_images: int, lowest: float) -> None:
    """n = 200: 0.05 of the 201 parts that 200 photos make is 10.05, a twentieth of the way from the tenth photo on."""
    assert _threshold(torch.arange(num_images, dtype=torch.float64)) == pytest.approx(lowest, abs=1e-6)


def test_photos_that_are_sure_but_far_from_every_class_are_strange(familiarity: Familiarity) -> None:
    probability, _, _ = photos(100, 3)
    features = torch.rand(100, 8, generator=torch.Generator().manual_seed(4)) + 4 * torch.eye(8)[7]
    strange = familiarity.scores(probability, features)
    assert (strange < familiarity.threshold).float().mean() > 0.9
    assert (familiarity.scores(*photos(100, 5)[:2]) >= familiarity.threshold).float().mean() > 0.8


def test_a_photo_that_is_unsure_of_its_class_is_strange_however_near_it_is(familiarity: Familiarity) -> None:
    probability, features, _ = photos(100, 3)
    unsure = familiarity.scores(torch.full_like(probability, 1 / 3), features)
    assert (unsure < familiarity.threshold).all()


@pytest.mark.parametrize("has_statistics", [True, False])
def test_it_survives_a_bundle(familiarity: Familiarity, has_statistics: bool) -> None:
    tensors = familiarity.tensors(has_statistics=has_statistics)
    again = Familiarity.of(
        {**tensors, "head.weight": torch.zeros(1)}, None if has_statistics else familiarity.statistics
    )
    some = photos(20, 6)[:2]
    torch.testing.assert_close(again.scores(*some), familiarity.scores(*some), rtol=1e-3, atol=1e-6)
    assert again.threshold == familiarity.threshold
    assert Familiarity.of({"head.weight": torch.zeros(1)}, None) is None


def test_merged_classes_are_one_and_forgotten_ones_are_strange(familiarity: Familiarity) -> None:
    probability, features, labels = photos(200, 1)
    merged = familiarity.regrouped([(0, 1), (2,)], (probability, features))
    assert merged.statistics.num_classes == 2
    share = (merged.scores(probability, features) >= merged.threshold).float().mean()
    assert share == pytest.approx(KEPT_SHARE, abs=0.02)
    staying = labels != 1
    rest = familiarity.regrouped([(0,), (2,)], (probability[staying], features[staying]))
    assert (rest.scores(probability, features)[~staying] < rest.threshold).all()
    assert familiarity.regrouped([(0,), (2,)], (probability[:5], features[:5])) is None, "too few"


def test_a_class_without_images_is_near_to_nothing() -> None:
    probability, features, labels = photos(200, 1)
    wide = torch.zeros(200, 5)
    wide[:, ::2] = probability
    found = Familiarity.fitted(features[:60], 2 * labels[:60], (wide, features))
    without = Familiarity.fitted(features[:60], labels[:60], (probability, features))
    torch.testing.assert_close(found.nearness(torch.eye(8)), without.nearness(torch.eye(8)))
    torch.testing.assert_close(found.nearness(torch.zeros(1, 8)), without.nearness(torch.zeros(1, 8)))
    assert found.regrouped([(1,), (3,)], (wide, features)) is None


def test_nearness_is_that_of_two_gaussians() -> None:
    _, given, labels = photos(60, 1)
    found = Familiarity(learned(given, labels, 3), torch.zeros(2, 2), 0.0)
    values = unit(given)
    within = values - torch.stack([values[labels == k].mean(0) for k in range(3)])[labels]
    around = values - values.mean(0)

    def distances(points: Tensor, sample: Tensor) -> Tensor:
        covariance = sample.T @ sample / len(sample)
        shrunk = 0.5 * covariance + 0.5 * covariance.diagonal().mean() * torch.eye(8, dtype=torch.float64)
        return (points @ torch.linalg.inv(shrunk) * points).sum(1)

    to_classes = torch.stack([distances(values - values[labels == k].mean(0), within) for k in range(3)])
    torch.testing.assert_close(found.nearness(given), distances(around, around) - to_classes.amin(0))


def test_one_class_alone_has_none_and_one_photo_of_each_class_gives_numbers() -> None:
    probability, given, labels = photos(50, 2)
    assert Familiarity.fitted(given[labels == 0], labels[labels == 0], (probability, given)) is None
    few = Familiarity(learned(given[:3], torch.arange(3), 3), torch.zeros(2, 2), 0.0)
    assert bool(few.nearness(given).isfinite().all())
