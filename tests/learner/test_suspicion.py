"""Labels that are probably wrong."""

import torch
from torch import Tensor

from foster.learner.suspicion import are_suspect, judge, judgeable, left_out_probabilities
from foster.networks.heads import unit_roots


def features(count: int, num_classes: int = 4) -> tuple[Tensor, Tensor]:
    """`[N, 16]` of `count` photos of each class, and what they show."""
    chance = torch.Generator().manual_seed(0)
    true = torch.arange(num_classes).repeat_interleave(count)
    return unit_roots((8 * torch.eye(num_classes, 16)[true] + torch.randn(len(true), 16, generator=chance)).abs()), true


def test_wrong_labels_are_found_by_the_other_photos() -> None:
    pictures, true = features(25)
    labels = true.clone()
    wrong = [3, 30, 60, 90]
    labels[wrong] = (labels[wrong] + 1) % 4
    found = judge(left_out_probabilities(pictures, labels, range(len(labels))), labels)
    assert sorted(one.position for one in found.suspects) == wrong
    assert [one.other for one in sorted(found.suspects, key=lambda one: one.position)] == true[wrong].tolist()
    assert all(one.other_probability > 0.5 > one.own_probability for one in found.suspects)
    assert found.is_trusted
    assert not judge(left_out_probabilities(pictures, true, range(len(true))), true).suspects


def test_photos_that_are_nearly_the_same_do_not_vouch_for_each_other() -> None:
    pictures, true = features(10)
    labels = torch.cat([true, torch.tensor([1, 1, 1])])
    pictures = torch.cat([pictures, pictures[:1].expand(3, -1)])  # a photo of class 0, three times among class 1
    together = [*range(40), 40, 40, 40]
    found = judge(left_out_probabilities(pictures, labels, together), labels)
    assert {one.position for one in found.suspects} == {40, 41, 42}


def test_a_class_of_copies_or_of_another_classs_photos_cannot_be_judged() -> None:
    names = ["burst"] * 6 + ["cat"] * 6 + ["dog"] * 9 + ["twin"] * 5
    cats, dogs = list(range(1, 7)), list(range(7, 16))
    assert judgeable(names, [0] * 6 + cats + dogs + dogs[:5]) == ["cat"], "of the dogs four are left"
    assert judgeable(names[:21], [0] * 6 + cats + dogs) == ["cat", "dog"]


def test_a_classifier_that_is_often_wrong_accuses_nobody() -> None:
    labels = torch.arange(4).repeat(10)
    found = judge(torch.eye(4)[(labels + (torch.arange(40) % 2)) % 4], labels)
    assert found.suspects == ()
    assert not found.is_trusted


def test_the_threshold_of_a_class_is_how_sure_it_is_of_its_own() -> None:
    absent = [0.08, 0.35, 0.57]  # says a class without photos, less surely than the others are of theirs
    sure, unsure = [0.95, 0.05, 0.0], [0.4, 0.6, 0.0]
    probability = torch.tensor(
        [sure] * 8 + [unsure] * 8 + [[0.7, 0.1, 0.2], [0.05, 0.5, 0.45], [0.02, 0.0, 0.98], absent]
    )
    labels = torch.tensor([0] * 8 + [1] * 8 + [1, 0, 0, 0])
    assert are_suspect(probability, labels).nonzero()[:, 0].tolist() == [18], "0.7, 0.5 and 0.57 are less than usual"


def test_a_photo_whose_own_class_is_not_improbable_is_not_accused() -> None:
    sure, doubtful, accused = [0.6, 0.4, 0.0], [0.89, 0.11, 0.0], [0.91, 0.09, 0.0]
    probability = torch.tensor([sure] * 8 + [[0.0, 1.0, 0.0]] * 8 + [doubtful, accused])
    assert are_suspect(probability, torch.tensor([0] * 8 + [1] * 10)).nonzero()[:, 0].tolist() == [17]


def test_of_three_photos_of_another_class_in_one_most_are_found_and_no_other() -> None:
    pictures, true = features(18)
    labels = true.clone()
    labels[:3] = 1
    found = judge(left_out_probabilities(pictures, labels, range(len(labels))), labels)
    positions = {one.position for one in found.suspects}
    assert positions <= {0, 1, 2}
    assert len(positions) >= 2
