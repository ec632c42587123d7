"""Unknown things: nearly all known photos are answered, and strange ones look less familiar."""

import pytest
import torch
from torch import Tensor

from foster.learner.familiarity import KEPT_SHARE, Familiarity, auroc


def photos(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, features and labels of photos of three classes."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=chance)
    features = 4 * torch.eye(8)[labels] + torch.rand(count, 8, generator=chance)
    return (features[:, :3] * 2).softmax(1), features, labels


@pytest.fixture
def familiarity() -> Familiarity:
    _, features, labels = photos(60, 0)
    found = Familiarity.fitted(features, labels, 3, photos(200, 1)[:2])
    assert found is not None
    return found


def test_it_answers_the_promised_share_of_known_photos(familiarity: Familiarity) -> None:
    held_out = familiarity.scores(*photos(200, 1)[:2])
    assert (held_out >= familiarity.threshold).float().mean() == pytest.approx(KEPT_SHARE, abs=0.01)
    others = familiarity.scores(*photos(500, 2)[:2])
    assert (others >= familiarity.threshold).float().mean() == pytest.approx(KEPT_SHARE, abs=0.04)


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
    assert Familiarity.fitted(features, labels, 3, photos(19, 1)[:2]) is None


def test_auroc_counts_pairs() -> None:
    assert auroc(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0])) == pytest.approx((2 + 0 + 0.5) / 4)


def test_regrouped_classes_have_the_means_of_their_groups(familiarity: Familiarity) -> None:
    probability, features, labels = photos(200, 1)
    staying = labels != 1
    regrouped = familiarity.regrouped([(0, 2)], (probability[staying], features[staying]))
    assert regrouped is not None
    torch.testing.assert_close(regrouped.means, torch.nn.functional.normalize(familiarity.means[[0, 2]].mean(0)[None]))
    answered = regrouped.scores(probability[staying], features[staying]) >= regrouped.threshold
    assert answered.float().mean() == pytest.approx(KEPT_SHARE, abs=0.02)
    assert familiarity.regrouped([(0,)], (probability[:5], features[:5])) is None, "too few"


def test_the_mean_of_a_class_without_images_is_a_number_that_is_never_near() -> None:
    _, features, labels = photos(60, 0)
    found = Familiarity.fitted(features, labels, 4, photos(200, 1)[:2])
    assert found is not None
    assert all(bool(value.isfinite().all()) for value in found.tensors().values())
    with_it, without = found.scores(*photos(50, 2)[:2]), found.regrouped([(0,), (1,), (2,)], photos(200, 1)[:2])
    assert without is not None
    torch.testing.assert_close(with_it, without.scores(*photos(50, 2)[:2]))
    joined = found.regrouped([(0, 3), (1,), (2,)], photos(200, 1)[:2])
    assert joined is not None
    assert torch.equal(joined.means[0], found.means[0])
