from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack
from foster.evaluation.predict import class_means, evaluate_scores, nearest_mean_scores, network_scores, ranks
from foster.networks.network import Output


def test_class_means_are_unit_means_of_unit_features() -> None:
    # Class 0: (1, 0) and (0, 1), with mean (0.5, 0.5); class 1: (0.6, 0.8) alone.
    features = torch.tensor([[5.0, 0.0], [3.0, 4.0], [0.0, 0.1]])
    means = class_means(features, torch.tensor([0, 1, 0]), 2)
    torch.testing.assert_close(means, torch.tensor([[0.5**0.5, 0.5**0.5], [0.6, 0.8]]))


def test_nearest_mean_scores_of_many_classes_are_those_of_each() -> None:
    chance = torch.Generator().manual_seed(0)
    features, means = torch.rand(5, 16, generator=chance), torch.rand(19, 16, generator=chance)
    units = features / features.norm(dim=1, keepdim=True)
    torch.testing.assert_close(nearest_mean_scores(features, means), -torch.cdist(units, means).square())


def test_a_class_without_exemplars_is_never_the_nearest() -> None:
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    means = class_means(features[:1], torch.tensor([1]), 3)
    scores = nearest_mean_scores(features, means)
    assert not means.isnan().any()
    assert not scores.isnan().any()
    assert scores.argmax(1).tolist() == [1, 1, 1]
    assert ranks(scores, torch.tensor([0, 1, 2])).tolist() == [3, 0, 3]


def test_nearest_mean_scores_are_as_exact_inside_autocast() -> None:
    features = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    means = class_means(features, torch.arange(20) % 4, 4)
    exact = nearest_mean_scores(features, means)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(nearest_mean_scores(features, means), exact)


def test_ranks_agree_with_a_stable_sort_and_with_argmax_on_ties() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (200, 9), generator=draw).float()
    labels = torch.randint(0, 9, (200,), generator=draw)
    order = np.argsort(-scores.numpy(), axis=1, kind="stable")
    expected = [row.tolist().index(label) for row, label in zip(order, labels.tolist(), strict=True)]
    assert ranks(scores, labels).tolist() == expected
    assert ((ranks(scores, labels) == 0) == (scores.argmax(1) == labels)).all()


def test_a_score_that_is_not_a_number_is_never_correct() -> None:
    nan, inf = torch.nan, torch.inf
    scores = torch.tensor([[nan, nan, nan], [nan, 1.0, 0.0], [2.0, nan, 0.0], [-inf, -inf, -inf], [0.0, inf, 1.0]])
    assert ranks(scores, torch.tensor([0, 0, 0, 0, 1])).tolist() == [3, 3, 1, 3, 0]


NAMES = ("left", "right")


def at(*angles: float) -> Tensor:
    """Images whose first two channels hold 100 + 100 times the cosine and sine of these degrees."""
    turns = torch.deg2rad(torch.tensor(angles))
    pixels = torch.stack([100 + 100 * turns.cos(), 100 + 100 * turns.sin(), torch.zeros(len(angles))], dim=1)
    return pixels.round().to(torch.uint8).view(-1, 3, 1, 1)


def infer(network: nn.Module, images: Stack) -> Output:
    """The direction itself as features; a head that always says right."""
    features = (images.tensor[:, :2, 0, 0].float() - 100) / 100
    return Output(logits=torch.tensor([[0.0, 1.0]]).expand(len(features), 2), features=features)


def test_the_head_and_the_nearest_mean_score_the_same_images() -> None:
    test = ImageSet(at(170, 10, 100), torch.tensor([0, 1, 0]), NAMES)
    exemplars = ImageSet(at(180, 160, 0, 20), torch.tensor([0, 0, 1, 1]), NAMES)
    scores = network_scores(infer, nn.Identity(), test, exemplars, num_classes=2)
    assert scores["head"].argmax(1).tolist() == [1, 1, 1]
    assert scores["nearest_mean"].argmax(1).tolist() == [0, 1, 0]
    # The means point to 170 and 10 degrees; 100 degrees are 70 and 90 away.
    distances = [-(2 - 2 * torch.deg2rad(torch.tensor(angle)).cos().item()) for angle in (70.0, 90.0)]
    assert scores["nearest_mean"][2].tolist() == pytest.approx(distances, abs=0.03)


def test_without_exemplars_there_is_the_head_alone() -> None:
    test = ImageSet(at(170), torch.tensor([0]), NAMES)
    assert network_scores(infer, nn.Identity(), test, None, num_classes=2).keys() == {"head"}


def test_scores_are_measured_task_by_task() -> None:
    scores = torch.tensor([[3.0, 2, 1], [1, 3, 2], [1, 2, 3], [3, 2, 1]])
    test = ImageSet(at(0, 0, 0, 0), torch.tensor([0, 1, 2, 2]), ("a", "b", "c"))
    found = evaluate_scores(scores, test, task_sizes=(2, 1))
    assert found.accuracy == pytest.approx(75)
    assert list(found.per_task) == pytest.approx([100, 50])
    again = replace(test, beside={"task": torch.tensor([0, 2, 1, 2])})
    found = evaluate_scores(scores, again, task_sizes=(2, 1, 0))
    assert found.accuracy == pytest.approx(75)
    assert list(found.per_task) == pytest.approx([100, 100, 50]), "each by its own images, whatever their classes"
    assert (found.old_accuracy, found.new_accuracy) == (100, 50)
