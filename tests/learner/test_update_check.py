from typing import Any

import numpy as np
import pytest

import foster
from foster.errors import SettingsError
from foster.learner.update_check import MIN_HELD_OUT, UpdateCheck, compare, deciding, problem

NAMES = ("cat", "dog", "owl")


def hand_made() -> UpdateCheck:
    """Two known classes and a new one. Cat: 3 of 4 before, 2 of 4 after, one lost. Dog: 1 of 2 before and after."""
    labels = [0, 0, 0, 0, 1, 1, 2]
    before = [0, 0, 0, 1, 1, 0, 0]
    after = [0, 0, 2, 1, 0, 1, 2]
    return compare("held-out", labels, before, after, NAMES, num_known=2)


def test_accuracy_before_and_after_and_negative_flips_by_hand() -> None:
    check = hand_made()
    cat, dog, owl = check.classes
    assert (cat.before, cat.after, cat.num_negative_flips) == (75.0, 50.0, 1)
    assert (dog.before, dog.after, dog.num_negative_flips) == (50.0, 50.0, 1)
    assert (owl.before, owl.after, owl.num_negative_flips) == (None, 100.0, 0)
    assert check.num_negative_flips == 2


def test_means_are_over_classes_and_not_over_images() -> None:
    check = hand_made()
    assert check.known_before == (75 + 50) / 2
    assert check.known_after == 50.0
    assert check.new_after == 100.0
    assert check.accuracy == pytest.approx((50 + 50 + 100) / 3)
    assert check.drop == 12.5


def test_a_first_learn_has_no_known_classes_and_nothing_to_lose() -> None:
    check = compare("held-out", [0, 1], None, [0, 0], NAMES, num_known=0)
    assert check.known_before is None
    assert check.known_after is None
    assert check.accuracy == 50.0
    assert check.drop == 0.0
    assert problem([check], max_drop=0) is None


def test_classes_without_images_are_left_out() -> None:
    assert [entry.name for entry in compare("held-out", [2], None, [2], NAMES, num_known=2).classes] == ["owl"]


def check_of(kind: str, num_images: int, num_right_after: int) -> UpdateCheck:
    after = np.r_[np.zeros(num_right_after, int), np.ones(num_images - num_right_after, int)]
    return compare(kind, np.zeros(num_images, int), np.zeros(num_images, int), after, NAMES, num_known=1)


def test_enough_held_out_images_decide_alone_whatever_the_exemplars_say() -> None:
    forgotten = check_of("held-out", MIN_HELD_OUT, MIN_HELD_OUT // 2)
    remembered = check_of("exemplar", 1000, 1000)
    assert deciding([forgotten, remembered]) == forgotten
    message = problem([forgotten, remembered], max_drop=5)
    assert message is not None
    assert "from 100.0 to 50.0 % on 20 held-out images, by more than 5 points" in message
    assert "worst: 'cat', 100 to 50 %" in message


def test_a_class_without_held_out_images_is_judged_by_its_exemplars() -> None:
    """Many held-out images of cats, still right; dogs and owls, of which there are exemplars alone, are forgotten."""
    cats = compare("held-out", [0] * 25, [0] * 25, [0] * 25, NAMES, num_known=3)
    labels = np.repeat(np.arange(3), 20)
    exemplars = compare("exemplar", labels, labels, np.zeros_like(labels), NAMES, num_known=3)
    found = deciding([cats, exemplars])
    assert found is not None
    assert [(entry.name, entry.num_images, entry.after) for entry in found.classes] == [
        ("cat", 25, 100.0),
        ("dog", 20, 0.0),
        ("owl", 20, 0.0),
    ]
    message = problem([cats, exemplars], max_drop=5)
    assert message is not None
    assert "from 100.0 to 33.3 % on 65 held-out and exemplar images" in message


def test_new_classes_do_not_decide() -> None:
    labels = [0] * MIN_HELD_OUT + [1] * MIN_HELD_OUT
    check = compare("held-out", labels, [0] * 2 * MIN_HELD_OUT, [0] * 2 * MIN_HELD_OUT, NAMES, num_known=1)
    found = deciding([check])
    assert found is not None
    assert [entry.name for entry in found.classes] == ["cat"]
    assert deciding([compare("held-out", [1], [0], [0], NAMES, num_known=1)]) is None


def test_the_record_holds_every_class() -> None:
    assert hand_made().record()["classes"] == {
        "cat": {"images": 4, "before": 75.0, "after": 50.0, "negative_flips": 1},
        "dog": {"images": 2, "before": 50.0, "after": 50.0, "negative_flips": 1},
        "owl": {"images": 1, "before": None, "after": 100.0, "negative_flips": 0},
    }


def test_few_held_out_images_decide_together_with_the_exemplars() -> None:
    few, many = check_of("held-out", MIN_HELD_OUT - 1, 0), check_of("exemplar", 181, 181)
    found = deciding([few, many])
    assert found is not None
    assert found.num_known_images == 200
    assert found.drop == pytest.approx(9.5)
    assert problem([few, many], max_drop=10) is None
    assert problem([few, many], max_drop=9) is not None


def test_a_drop_of_exactly_the_limit_is_allowed() -> None:
    check = check_of("held-out", 100, 95)
    assert problem([check], max_drop=5) is None
    assert problem([check], max_drop=4.99) is not None


def test_checks_are_combined_class_by_class() -> None:
    both = deciding([hand_made(), UpdateCheck("exemplar", hand_made().known)])
    assert both is not None
    assert both.kind == "held-out and exemplar"
    cat = both.classes[0]
    assert (cat.num_images, cat.num_right_before, cat.num_right_after, cat.num_negative_flips) == (8, 6, 4, 2)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_drop": "5"}, "max_drop: this is a number of points, not '5'"),
        ({"max_drop": float("nan")}, "max_drop: this is a number of points, not nan"),
        ({"minutes": 0}, "minutes: this is a number above 0, not 0"),
        ({"minutes": float("nan")}, "minutes: this is a number above 0, not nan"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_before_anything_is_read(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        foster.Learner().learn("nowhere", **limits)
