"""How good a learner is on labelled photos."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_learners import digits, unseen_digits

from foster import events
from foster.data.photos.find import find_photos
from foster.errors import DataError
from foster.learner.assessment import UnknownReport, assess
from foster.learner.calibration import expected_calibration_error
from foster.learner.familiarity import Familiarity
from foster.learner.learner import Learner


def test_evaluation_counts_by_class_and_leaves_unknown_classes_out(taught: Learner) -> None:
    images, names = digits("seven", "zero", "one", last=12, data=unseen_digits())
    tiny = torch.zeros(3, 2, 2, dtype=torch.uint8)
    progress: list[events.Event] = []
    report = taught.evaluate([*images, tiny], [*names, "one"], listener=progress.append)
    assert progress == [events.Decoding("the arguments", 25, 25)]
    assert [photo.name for photo in report.unreadable] == ["image 36"]
    predicted = [found.label for found in taught.predict(images)]
    right = [sum(a == b for a, b in zip(predicted[k : k + 12], names[k : k + 12], strict=True)) for k in (12, 24)]
    assert [(entry.name, entry.num_images, entry.num_right) for entry in report.classes] == [
        ("zero", 12, right[0]),
        ("one", 12, right[1]),
    ]
    assert report.accuracy == pytest.approx(100 * sum(right) / 24)
    assert all(fact in str(report) for fact in (f"{report.accuracy:.2f} %", "24 images", "2 classes"))
    uneven = replace(report, confusion={"one": {"one": 3, "two": 1, "three": 2}, "two": {"two": 2}})
    assert (uneven.accuracy, uneven.class_accuracy) == (62.5, 75.0)
    assert [entry.mistaken_for for entry in uneven.classes] == ["three", None]
    assert report.unknown_classes == {"seven": 12}
    with pytest.raises(DataError, match="classes in the arguments"):
        taught.evaluate(digits("seven"))
    with pytest.raises(DataError, match="--unknown auto"):
        taught.evaluate(images, ["unknown"] * 36)


def test_photos_that_should_be_refused_count_apart_wherever_they_lie(taught: Learner) -> None:
    known, names = digits("zero", "one", last=12, data=unseen_digits())
    others, _ = digits("seven", last=12, data=unseen_digits())
    classifier = taught.classifier()
    probability, features = classifier.described(known)
    familiarity = Familiarity.fitted(features, torch.arange(2).repeat_interleave(12), (probability, features))
    assert familiarity is not None
    photos = find_photos(torch.cat((others, known)), [*["unknown"] * 12, *names])
    report = assess(replace(taught.known, familiarity=familiarity), classifier, photos, events.ignore)
    plain = taught.evaluate(known, names)
    assert (report.confusion, report.calibration_error) == (plain.confusion, pytest.approx(plain.calibration_error))
    error = expected_calibration_error(probability, torch.arange(2).repeat_interleave(12))
    assert report.calibration_error == pytest.approx(100 * error), "points of percent"
    refused = [
        int((familiarity.scores(*classifier.described(images)) < familiarity.threshold).sum())
        for images in (others, known)
    ]
    assert report.unknown == UnknownReport(12, *refused)
    assert 0 < refused[0] != 12 - refused[0]


def test_an_evaluation_of_unreadable_images_alone_advises_nothing_that_it_does_not_have(
    taught: Learner, tmp_path: Path
) -> None:
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "broken.png").write_bytes(b"broken")
    with pytest.raises(DataError, match="no image") as refused:
        taught.evaluate(tmp_path)
    assert "max_unreadable" not in str(refused.value)
