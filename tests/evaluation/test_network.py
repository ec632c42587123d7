"""Scores of a network by its head and by the nearest mean, worked out by hand."""

import pytest
import torch
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack
from foster.evaluation.network import evaluate_scores, network_scores
from foster.networks.network import Output

NAMES = ("left", "right")


def at(*angles: float) -> Tensor:
    """Images whose first two channels hold 100 + 100 times the cosine and sine of these degrees."""
    turns = torch.deg2rad(torch.tensor(angles))
    pixels = torch.stack([100 + 100 * turns.cos(), 100 + 100 * turns.sin(), torch.zeros(len(angles))], dim=1)
    return pixels.round().to(torch.uint8).view(-1, 3, 1, 1)


def infer(network: nn.Module, images: Stack) -> Output:
    """The direction itself as features; a head that always says right."""
    assert isinstance(images, Tensor)
    features = (images[:, :2, 0, 0].float() - 100) / 100
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
    found = evaluate_scores(scores, torch.tensor([0, 1, 2, 2]), task_sizes=(2, 1))
    assert found.accuracy == pytest.approx(75)
    assert list(found.per_task) == pytest.approx([100, 50])
