"""Statistics of features and the classifiers that follow from them, against NumPy and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import sklearn_images
import torch
from torch import Tensor
from torch.testing import assert_close

from foster.networks import statistics as module
from foster.networks.statistics import (
    SHRINKAGE,
    Statistics,
    discriminants,
    discriminants_of_few,
    left_out_scores,
    random_features,
    random_weights,
    ridge,
    unit_roots,
)
from foster.seeding import Address

NUM_CLASSES = 10


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    images, labels = sklearn_images.digits()
    return torch.from_numpy(images / 16), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def known(digits: tuple[Tensor, Tensor]) -> Statistics:
    return Statistics.empty(NUM_CLASSES, 64).added(*digits)


def assert_equal(found: Statistics, expected: Statistics) -> None:
    assert found.counts.tolist() == expected.counts.tolist()
    assert_close(found.sums, expected.sums)
    assert_close(found.second_moment, expected.second_moment)


def test_sums_are_those_of_numpy_whatever_the_chunks(
    digits: tuple[Tensor, Tensor], known: Statistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = (part.numpy() for part in digits)
    assert known.counts.tolist() == np.bincount(labels).tolist()
    np.testing.assert_allclose(known.means, [images[labels == label].mean(0) for label in range(NUM_CLASSES)])
    centred = np.concatenate([images[labels == label] - images[labels == label].mean(0) for label in range(10)])
    np.testing.assert_allclose(known.within_class_covariance, centred.T @ centred / len(images), atol=1e-12)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 100)
    assert_equal(Statistics.empty(NUM_CLASSES, 64).added(*digits), known)


def test_roots_keep_the_signs_of_features_and_have_unit_length() -> None:
    assert_close(unit_roots(torch.tensor([[9.0, -16.0, 0.0]])), torch.tensor([[0.6, -0.8, 0.0]]))


def test_images_add_up_in_any_order_and_class_by_class(digits: tuple[Tensor, Tensor], known: Statistics) -> None:
    images, labels = digits
    grown = Statistics.empty(0, 64)
    for first in (0, 5):
        of_task = (labels >= first) & (labels < first + 5)
        grown = grown.grown(5).added(images[of_task], labels[of_task])
    assert_equal(grown, known)
    halves = Statistics.empty(NUM_CLASSES, 64).added(images[900:], labels[900:]).added(images[:900], labels[:900])
    assert_equal(halves, known)


def test_merging_and_reordering_are_exact(digits: tuple[Tensor, Tensor], known: Statistics) -> None:
    images, labels = digits
    merged = known.regrouped([[1], [0, 2], *([other] for other in range(3, 10))])
    names = torch.tensor([1, 0, 1, *range(2, 9)])
    assert_equal(merged, Statistics.empty(9, 64).added(images, names[labels]))


def test_a_class_is_forgotten_exactly_with_its_features_and_leaves_the_covariance_without(
    digits: tuple[Tensor, Tensor], known: Statistics
) -> None:
    images, labels = digits
    kept = labels != 4
    others = Statistics.empty(9, 64).added(images[kept], labels[kept] - (labels[kept] > 4).long())
    staying = [[k] for k in range(10) if k != 4]
    assert_equal(known.without(images[~kept], labels[~kept]).regrouped(staying), others)
    estimated = known.regrouped(staying)
    assert estimated.counts.tolist() == others.counts.tolist()
    assert_close(estimated.sums, others.sums)
    assert_close(estimated.within_class_covariance, known.within_class_covariance)


@pytest.mark.parametrize("shrinkage", [0.01, 0.5])
def test_discriminants_are_those_of_scikit_learn(
    digits: tuple[Tensor, Tensor], known: Statistics, shrinkage: float
) -> None:
    images, labels = (part.numpy() for part in digits)
    # It shrinks standardised features and adds the logarithms of the classes' shares, so a few decisions differ.
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    theirs: Any = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(images, labels)
    covariance = (1 - shrinkage) * known.within_class_covariance.numpy()
    covariance += shrinkage * np.trace(known.within_class_covariance) / 64 * np.eye(64)
    weight, bias = discriminants(known, shrinkage)
    means = known.means.numpy()
    np.testing.assert_allclose(weight, np.linalg.solve(covariance, means.T).T, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias, -0.5 * (weight.numpy() * means).sum(1), rtol=1e-6)
    predicted = (digits[0] @ weight.T + bias).argmax(1).numpy()
    assert (predicted == theirs.predict(images)).mean() > 0.98


def test_one_image_a_class_of_any_size_is_no_spread() -> None:
    features = 100 * torch.rand(5, 64, generator=torch.Generator().manual_seed(0))
    weight, bias = discriminants(Statistics.empty(5, 64).added(features, torch.arange(5)), 0.5)
    assert (features.double() @ weight.T + bias).argmax(1).tolist() == [0, 1, 2, 3, 4]


def test_classes_of_few_images_are_answered_about_as_often_as_those_of_many() -> None:
    source = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 200, generator=source).double() / 3
    labels = torch.tensor([0, 2, 4, 6, 8] * 60 + [1, 3, 5, 7, 9] * 4)
    known = Statistics.empty(10, 200).added(centres[labels] + torch.randn(320, 200, generator=source), labels)
    asked = torch.arange(10).repeat(60)
    images = centres[asked] + torch.randn(600, 200, generator=source)
    shares, accuracies = [], []
    for weight, bias in (discriminants(known, SHRINKAGE), discriminants_of_few(known)):
        answered = (images @ weight.T + bias).argmax(1)
        shares.append(float((answered % 2).double().mean()))
        accuracies.append(float((answered == asked).double().mean()))
    assert shares[0] < 0.25 < 0.4 < shares[1] < 0.6
    assert accuracies[1] > accuracies[0] + 0.1


def test_classes_that_do_not_differ_are_expected_to_have_the_same_mean() -> None:
    features = torch.randn(60, 20, generator=torch.Generator().manual_seed(1))
    alike = Statistics.empty(3, 20).added(features, torch.arange(60) % 3)
    measured, expected = (weight for weight, _ in (discriminants(alike, SHRINKAGE), discriminants_of_few(alike)))
    assert (expected - expected.mean(0)).norm() < 0.1 * (measured - measured.mean(0)).norm()


def test_one_wrong_label_in_a_small_class_does_not_attract_the_photos_of_another() -> None:
    source = torch.Generator().manual_seed(0)
    centres = 6 * torch.randn(3, 200, generator=source).double()  # far apart: more between classes than within
    shown = torch.tensor([0] * 21 + [1] * 3 + [2] * 14 + [0])
    labels = torch.tensor([0] * 21 + [1] * 3 + [2] * 14 + [1])
    images = centres[shown] + torch.randn(39, 200, generator=source)
    weight, bias = discriminants_of_few(Statistics.empty(3, 200).added(images, labels))
    asked = centres[0] + torch.randn(100, 200, generator=source)
    assert ((asked @ weight.T + bias).argmax(1) == 0).double().mean() > 0.9


def test_the_spreads_are_those_of_images_and_classes_that_were_not_measured() -> None:
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 4
    images = torch.randn(4, 100, generator=source)[labels] + torch.randn(80, 100, generator=source)
    known = Statistics.empty(4, 100).added(images, labels)
    prior = known.prior_of_means
    true_spread = torch.cholesky_inverse(known.factor).trace().item()  # the covariance is I
    assert prior is not None
    assert prior.within.item() == pytest.approx(true_spread, rel=0.05)
    assert prior.between.item() == pytest.approx(true_spread, rel=0.25)  # that of class means is I, too
    assert_close(discriminants_of_few(known.grown(1))[0][:4], discriminants_of_few(known)[0])


@pytest.mark.parametrize("num_images", [1, 100])
def test_discriminants_of_few_are_the_usual_ones_where_classes_have_many_images_or_one(
    digits: tuple[Tensor, Tensor], num_images: int
) -> None:
    images, labels = digits
    chosen = torch.cat([torch.nonzero(labels == label)[:num_images, 0] for label in range(NUM_CLASSES)])
    known = Statistics.empty(NUM_CLASSES, 64).added(images[chosen], labels[chosen])
    usual, found = (
        (images @ weight.T + bias).argmax(1)
        for weight, bias in (discriminants(known, SHRINKAGE), discriminants_of_few(known))
    )
    assert (usual == found).double().mean() > 0.98


def test_what_is_said_of_an_image_left_out_is_what_the_others_say(digits: tuple[Tensor, Tensor]) -> None:
    images, labels = (part[:60] for part in digits)
    images, labels = torch.cat((images, images[:1] * 0)), torch.cat((labels, torch.tensor([10])))  # one of a kind
    known = Statistics.empty(NUM_CLASSES + 1, 64).added(images, labels)
    scores, is_judged = left_out_scores(known, images, labels)
    assert is_judged.tolist() == [True] * 60 + [False]
    answers = []
    for left_out in range(60):
        others = torch.arange(61) != left_out
        weight, bias = discriminants_of_few(Statistics.empty(NUM_CLASSES + 1, 64).added(images[others], labels[others]))
        answers.append(images[left_out] @ weight.T + bias)
    expected = torch.stack(answers)
    # What is expected of means changes a little with the image, which the closed form leaves out.
    expected, found = (one - one.mean(1, keepdim=True) for one in (expected, scores[:60]))
    assert (found - expected).abs().mean() < 0.02 * expected.abs().mean()
    own = torch.arange(60), labels[:60]
    assert (found[own] - expected[own]).abs().mean() < 0.01 * expected[own].abs().mean()
    assert (found.argmax(1) == expected.argmax(1)).double().mean() > 0.95


def test_few_images_are_still_measured_after_a_class_of_many_was_forgotten_without_its_features() -> None:
    features = torch.randn(60, 64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0] * 50 + [1] * 5 + [2] * 5)
    features[labels == 2, 0] += 10
    left = Statistics.empty(3, 64).added(features, labels).regrouped([[1], [2]])
    scores, is_judged = left_out_scores(left, features[50:], labels[50:] - 1)
    assert is_judged.all()
    assert (scores.argmax(1) == labels[50:] - 1).float().mean() >= 0.8


@pytest.mark.parametrize("num_images", [40, 1797])
def test_ridge_is_that_of_scikit_learn_in_both_forms(digits: tuple[Tensor, Tensor], num_images: int) -> None:
    images, labels = digits[0][:num_images], digits[1][:num_images]
    from sklearn.linear_model import Ridge

    theirs = Ridge(alpha=2.0, fit_intercept=False).fit(images.numpy(), np.eye(NUM_CLASSES)[labels.numpy()])
    sums = Statistics.empty(NUM_CLASSES, 64).added(images, labels)
    np.testing.assert_allclose(ridge(sums.second_moment, sums.sums, 2.0), theirs.coef_, atol=1e-8)


def test_random_features_depend_on_their_address_alone(digits: tuple[Tensor, Tensor]) -> None:
    weight, bias = random_weights(64, 2000, Address(7, "random features"))
    assert weight.std().item() == pytest.approx(1 / 8, rel=0.01)
    assert bias.std().item() == pytest.approx(0.3, rel=0.05)
    again, _ = random_weights(64, 2000, Address(7, "random features"))
    other, _ = random_weights(64, 2000, Address(8, "random features"))
    assert torch.equal(weight, again)
    assert not torch.equal(weight, other)
    images = digits[0].float()[:5]
    expected = np.maximum(images.numpy() @ weight.numpy() + bias.numpy(), 0)
    np.testing.assert_allclose(random_features(images, weight, bias), expected, atol=1e-5)
