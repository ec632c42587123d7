from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_learners import digits

from foster.errors import DataError
from foster.learner.learner import Learner
from foster.networks import build_backbone
from foster.reports.archive import open_archives
from foster.reports.mistakes import calibration_figure, class_rows, confused_pairs, most_confident_mistakes, picture
from foster.reports.pictures import shown_pixels


def test_rows_tell_accuracy_and_what_a_class_is_taken_for():
    labels = np.array([0, 0, 0, 0, 2, 2])
    first, second = np.array([0, 0, 2, 1, 2, 2]), np.array([0, 0, 0, 0, 1, 1])
    rows = class_rows(("cat", "dog", "eel"), (1, 2), labels, [first, second])
    assert [(row.name, row.task, row.num_images) for row in rows] == [("cat", 1, 4), ("eel", 2, 2)]
    assert [row.accuracies for row in rows] == [(50.0, 100.0), (100.0, 0.0)]
    assert [(row.mistaken_for, row.share) for row in rows] == [("dog", 25.0), ("", 0.0)]


def test_rows_of_many_classes_take_little_memory():
    ids = np.arange(100_000)
    rows = class_rows([f"class {k}" for k in ids], [len(ids)], ids, [np.roll(ids, 1)])
    assert (len(rows), rows[5].mistaken_for, rows[5].accuracies) == (100_000, "class 4", (0.0,))


def test_the_most_confused_pairs_come_first_with_pictures_of_them(kept_runs):
    (run,) = open_archives([kept_runs["finetune"]])
    labels, predicted = run.predictions()
    pairs = confused_pairs(run)
    assert [pair.count for pair in pairs] == sorted((pair.count for pair in pairs), reverse=True)
    names = np.array(run.class_names)
    for pair in pairs:
        is_pair = (names[labels] == pair.true) & (names[predicted] == pair.predicted)
        assert pair.true != pair.predicted
        assert pair.count == is_pair.sum() > 0
        assert pair.share == pytest.approx(100 * pair.count / (names[labels] == pair.true).sum())
        assert len(pair.pictures) == min(4, pair.count)
        assert all(address.startswith("data:image/png;base64,") for address in pair.pictures)


def test_pairs_have_no_pictures_where_the_images_are_gone(kept_runs, monkeypatch):
    (run,) = open_archives([kept_runs["finetune"]])
    pictured = confused_pairs(run)
    monkeypatch.setattr("foster.reports.archive.load_scenario", Mock(side_effect=DataError("gone")))
    (run,) = open_archives([kept_runs["finetune"]])
    assert confused_pairs(run) == [replace(pair, pictures=()) for pair in pictured]


def test_a_photo_without_an_answer_is_no_mistake(bundle, monkeypatch):
    (archive,) = open_archives([bundle])
    predicted, confidence = archive.tested_answers()
    monkeypatch.setattr(archive, "tested_answers", lambda: (np.full_like(predicted, -1), confidence))
    assert most_confident_mistakes(archive) == ([], 0)


def test_the_most_confident_mistakes_come_first(bundle):
    (archive,) = open_archives([bundle])
    found, num_wrong = most_confident_mistakes(archive, limit=3)
    labels, predicted = archive.predictions()
    confidence = archive.probabilities.max(1)
    first, *_ = wrong = sorted(np.flatnonzero(labels != predicted), key=lambda k: -confidence[k])
    assert num_wrong == len(wrong) > len(found) == 3
    assert [one.confidence for one in found] == pytest.approx([100 * confidence[k] for k in wrong[:3]])
    names = archive.class_names
    assert (found[0].true, found[0].predicted) == (names[labels[first]], names[predicted[first]])
    assert found[0].picture == picture(shown_pixels(archive.tested)[first])


def test_in_closed_form_answers_and_their_confidence_are_those_without_the_photo(tmp_path):
    torch.manual_seed(5)
    save_file(build_backbone("resnet8").state_dict(), tmp_path / "weights.safetensors")
    images, names = digits("zero", "one", "eight", "nine", last=12)
    weights = str(tmp_path / "weights.safetensors")
    learner = Learner(backbone="resnet8", weights=weights, device="cpu", memory_per_class=4)
    learner.learn(images, names)
    learner.save(tmp_path / "bundle")
    (archive,) = open_archives([tmp_path / "bundle"])
    labels, predicted = archive.predictions()
    assert np.bincount(labels).tolist() == [12] * 4, "all photos are measured"
    kept_labels, (kept, confidence) = archive.tested.labels.numpy(), archive.tested_answers()
    assert len(kept) == 16, "some are kept"
    assert (kept >= 0).all()
    assert ((confidence >= 0.25) & (confidence <= 1)).all(), "the best of four classes"
    found, num_wrong = most_confident_mistakes(archive)
    assert len(found) == num_wrong == int((kept_labels != kept).sum()) <= int((labels != predicted).sum())
    with pytest.raises(DataError, match="in closed form"):
        calibration_figure(archive)
    learner.learn(*digits("two", last=1))
    (archive,) = open_archives([learner.save(tmp_path / "more")])
    assert np.bincount(archive.predictions()[0]).tolist() == [12] * 4, "the only photo of a class is not measured"


def test_the_curve_compares_confidence_with_how_often_it_is_right(bundle):
    (archive,) = open_archives([bundle])
    (axes,) = calibration_figure(archive).axes
    _, curve = axes.lines
    labels, predicted = archive.predictions()
    confidence = archive.probabilities.max(1)
    inside = [(confidence >= low / 10) & (confidence < (low + 1) / 10 + (low == 9)) for low in range(10)]
    expected = [100 * float((labels == predicted)[mask].mean()) for mask in inside if mask.any()]
    assert list(curve.get_xdata()) == pytest.approx([100 * confidence[mask].mean() for mask in inside if mask.any()])
    assert list(curve.get_ydata()) == pytest.approx(expected)
    assert axes.get_xlim() == axes.get_ylim() == (0, 100)
