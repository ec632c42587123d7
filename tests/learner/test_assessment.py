"""How good a learner is on labelled photos."""

from pathlib import Path

import pytest
from small_learners import digits, unseen_digits

from foster.errors import DataError
from foster.learner.learner import Learner


def test_evaluation_counts_by_class_and_leaves_unknown_classes_out(taught: Learner) -> None:
    source = digits("zero", "one", "seven", last=12, data=unseen_digits())
    report = taught.evaluate(source)
    predicted = [found.label for found in taught.predict(source[0][:24])]
    right = [sum(a == b for a, b in zip(predicted[k : k + 12], source[1][k : k + 12], strict=True)) for k in (0, 12)]
    assert [(entry.name, entry.num_images, entry.num_right) for entry in report.classes] == [
        ("zero", 12, right[0]),
        ("one", 12, right[1]),
    ]
    assert report.accuracy == pytest.approx(100 * sum(right) / 24)
    assert all(fact in str(report) for fact in (f"{report.accuracy:.2f} %", "24 images", "2 classes"))
    assert report.unknown_classes == {"seven": 12}
    with pytest.raises(DataError, match="classes in the arguments"):
        taught.evaluate(digits("seven"))


def test_an_evaluation_of_unreadable_images_alone_advises_nothing_that_it_does_not_have(
    taught: Learner, tmp_path: Path
) -> None:
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "broken.png").write_bytes(b"broken")
    with pytest.raises(DataError, match="1 images") as refused:
        taught.evaluate(tmp_path)
    assert "max_unreadable" not in str(refused.value)
