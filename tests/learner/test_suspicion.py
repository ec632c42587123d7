"""Labels that are probably wrong."""

import sys
import types

import pytest
import torch
from torch import Tensor

from foster.learner.suspicion import MIN_PHOTOS, confident_positions, cross_validated, judge, judgeable


def features(count: int, num_classes: int = 4) -> tuple[Tensor, Tensor]:
    """`[N, 16]` of `count` photos of each class, and what they show."""
    chance = torch.Generator().manual_seed(0)
    true = torch.arange(num_classes).repeat_interleave(count)
    return 4 * torch.eye(num_classes, 16)[true] + torch.randn(len(true), 16, generator=chance), true


def test_wrong_labels_are_found_by_cross_validation() -> None:
    pictures, true = features(25)
    labels = true.clone()
    wrong = [3, 30, 60, 90]
    labels[wrong] = (labels[wrong] + 1) % 4
    found = judge(cross_validated(pictures, labels, range(len(labels))), labels)
    assert sorted(one.position for one in found.suspects) == wrong
    assert [one.other for one in sorted(found.suspects, key=lambda one: one.position)] == true[wrong].tolist()
    assert all(one.other_probability > 0.5 > one.own_probability for one in found.suspects)
    assert found.is_trusted
    assert not judge(cross_validated(pictures, true, range(len(true))), true).suspects


def test_photos_that_are_nearly_the_same_do_not_vouch_for_each_other() -> None:
    pictures, true = features(10)
    labels = torch.cat([true, torch.tensor([1, 1, 1])])
    pictures = torch.cat([pictures, pictures[:1].expand(3, -1)])  # a photo of class 0, three times among class 1
    together = [*range(40), 40, 40, 40]
    found = judge(cross_validated(pictures, labels, together), labels)
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
    assert confident_positions(probability, labels) == [18], "0.7, 0.5 and 0.57 are less than usual"


def test_a_photo_whose_own_class_is_not_improbable_is_not_accused() -> None:
    sure, doubtful, accused = [0.6, 0.4, 0.0], [0.89, 0.11, 0.0], [0.91, 0.09, 0.0]
    probability = torch.tensor([sure] * 8 + [[0.0, 1.0, 0.0]] * 8 + [doubtful, accused])
    assert confident_positions(probability, torch.tensor([0] * 8 + [1] * 10)) == [17]


def test_cleanlab_decides_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def find_label_issues(labels: object, pred_probs: object, return_indices_ranked_by: str) -> list[int]:
        asked.append(return_indices_ranked_by)
        return [5]

    package, module = types.ModuleType("cleanlab"), types.ModuleType("cleanlab.filter")
    module.find_label_issues = find_label_issues  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cleanlab", package)
    monkeypatch.setitem(sys.modules, "cleanlab.filter", module)
    labels = torch.arange(3).repeat(5)
    probability = torch.eye(3)[labels] * 0.9 + 0.03
    probability[5] = torch.tensor([0.9, 0.05, 0.05])
    assert [one.position for one in judge(probability, labels).suspects] == [5]
    assert asked == ["self_confidence"]
    with_another = torch.cat([probability, torch.zeros(15, 1)], dim=1)
    judge(with_another, labels)
    assert len(asked) == 1, "it wants a photo of every class"
    assert MIN_PHOTOS == 5
