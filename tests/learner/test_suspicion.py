"""Labels that are probably wrong."""

import pytest
import torch
from torch import Tensor

from foster.learner.check import Photo, _judged
from foster.learner.suspicion import are_suspect, judgeable, left_out_probabilities
from foster.networks.statistics import unit_roots


def features(count: int, num_classes: int = 4) -> tuple[Tensor, Tensor]:
    """`[N, 16]` of `count` photos of each class, and what they show."""
    chance = torch.Generator().manual_seed(0)
    true = torch.arange(num_classes).repeat_interleave(count)
    return unit_roots((8 * torch.eye(num_classes, 16)[true] + torch.randn(len(true), 16, generator=chance)).abs()), true


def suspects(pictures: Tensor, labels: Tensor, groups: list[int] | None = None) -> list[int]:
    found = left_out_probabilities(pictures, labels, groups or list(range(len(labels))))
    return are_suspect(found, labels).nonzero()[:, 0].tolist()


def test_wrong_labels_are_found_by_the_other_photos() -> None:
    pictures, true = features(25)
    labels = true.clone()
    wrong = [3, 30, 60, 90]
    labels[wrong] = (labels[wrong] + 1) % 4
    assert suspects(pictures, labels) == wrong
    found = left_out_probabilities(pictures, labels, range(len(labels)))
    assert found[wrong].argmax(1).tolist() == true[wrong].tolist()
    assert not suspects(pictures, true)


def test_photos_that_are_nearly_the_same_do_not_support_each_other() -> None:
    pictures, true = features(10)
    labels = torch.cat([true, torch.tensor([1, 1, 1])])
    pictures = torch.cat([pictures, pictures[:1].expand(3, -1)])  # a photo of class 0, three times among class 1
    assert suspects(pictures, labels, [*range(40), 40, 40, 40]) == [40, 41, 42]


def test_three_photos_of_another_class_in_one_are_found_and_no_other() -> None:
    pictures, true = features(18)
    labels = true.clone()
    labels[:3] = 1
    assert suspects(pictures, labels) == [0, 1, 2]


def test_a_class_of_copies_or_of_another_classs_photos_cannot_be_judged() -> None:
    names = ["burst"] * 6 + ["cat"] * 6 + ["dog"] * 9 + ["twin"] * 5
    cats, dogs = list(range(1, 7)), list(range(7, 16))
    assert judgeable(names, [0] * 6 + cats + dogs + dogs[:5]) == ["cat"], "of the dogs four are left"
    assert judgeable(names[:21], [0] * 6 + cats + dogs) == ["cat", "dog"]


@pytest.mark.parametrize(("num_wrong", "is_trusted"), [(1, True), (5, False)])
def test_a_classifier_that_is_often_wrong_accuses_nobody(num_wrong: int, is_trusted: bool) -> None:
    photos = [Photo(str(k), "ab"[k % 2], "") for k in range(10)]
    probability = torch.eye(2)[[(k + (k < num_wrong)) % 2 for k in range(10)]]
    accused, remarks = _judged(photos, probability, ("a", "b"), "a test")
    assert [finding.photos[0].name for finding in accused] == (["0"] if is_trusted else [])
    assert bool(remarks) != is_trusted


def test_the_least_probable_labels_come_first_with_the_class_that_they_look_like() -> None:
    photos = [Photo(str(k), "a", "") for k in range(10)]
    probability = torch.tensor([[0.9, 0.1]] * 7 + [[0.2, 0.8], [0.4, 0.6], [0.1, 0.9]])
    accused, _ = _judged(photos, probability, ("a", "b"), "a test")
    assert [finding.photos[0].name for finding in accused] == ["9", "7"], "0.4 is more than 0.6 of chance"
    assert accused[0].looks_like == "b"
