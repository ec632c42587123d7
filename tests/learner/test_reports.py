"""What a learner says about itself holds: what was held out, what was lost, and how sure it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_learners import digits, small_learner, together

import foster
from foster.data.feed import Feed, make_feed
from foster.data.images import ImageSet
from foster.data.photos.decode import image_id
from foster.events import Evaluated, Event
from foster.learner import train
from foster.learner.learner import Learner
from foster.learner.prediction import CalibrationWarning
from foster.learner.reports import (
    MIN_HELD_OUT,
    UpdateCheck,
    UpdateError,
    compare,
    deciding,
    large_loss,
    problem,
)
from foster.learner.training_plan import TrainingPlan, plan_training
from foster.training import task as task_module


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The ids of all images that training has seen so far."""
    seen: set[str] = set()

    def recording(data: ImageSet, *rest: Any) -> Feed:
        seen.update(image_id(image) for image in data.images)
        return make_feed(data, *rest)

    monkeypatch.setattr(task_module, "make_feed", recording)
    return seen


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[TrainingPlan]:
    found: list[TrainingPlan] = []

    def recording(*given: Any) -> TrainingPlan:
        found.append(plan_training(*given))
        return found[-1]

    monkeypatch.setattr(train, "plan_training", recording)
    return found


@pytest.mark.parametrize(
    ("first", "second", "are_listed"),
    [("standard", "fast", True), ("paper", "fast", False)],
)
def test_photos_that_come_again_are_not_measured_on_once_they_were_trained_on(
    trained: set[str],
    plans: list[TrainingPlan],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    first: str,
    second: str,
    are_listed: bool,
) -> None:
    """A bundle lists the photos that it has learned beside their features. Where there are no features, known classes
    hold out nothing."""
    if are_listed:
        monkeypatch.setattr(train, "_frozen_classifier", lambda plan: plan)
        monkeypatch.setattr(train, "_frozen_features", lambda _, images, stop: images.tensor.flatten(1).half() / 255)
    learner = small_learner(training=first, memory_total=30)
    learner.learn(digits("zero", "one", "two", last=60))
    before = set(trained)
    grown = digits("zero", "one", "two", "three", last=110)
    report = learner.learn(grown, training=second, epochs_scale=0.005)
    held_out = plans[-1].held_out
    fresh = plans[-1].new_held_out
    assert bool((fresh.labels < 3).any()) == are_listed
    assert (fresh.labels == 3).sum() >= 10
    assert not before & {image_id(image) for image in held_out.images}
    assert report.num_held_out == len(fresh)
    if are_listed:
        loaded = foster.load(learner.save(tmp_path / "bundle"), device="cpu").knowledge
        assert torch.equal(loaded.familiarity.statistics.sums, learner.knowledge.familiarity.statistics.sums)


def test_a_class_is_not_forgotten_unseen_because_others_have_many_held_out_images() -> None:
    learner = small_learner(training="paper", epochs_scale=0.04, memory_total=60)
    learner.learn(digits("zero", "one", "two", last=60))
    before = learner.knowledge
    more = together(digits("zero", last=None), digits("four", last=40))
    spoilt = {"compress": {"weight_decay": 0.5}}
    with pytest.raises(UpdateError, match="5 points") as refused:
        learner.learn(more, max_drop=5, training="standard", epochs_scale=0.02, validation_share=0.3, foster=spoilt)
    exemplars = next(check for check in refused.value.report.checks if check.kind == "exemplar")
    assert exemplars.drop > 50
    assert refused.value.report.uncompared == (), "of the others, exemplars are there to compare"
    assert learner.knowledge is before


def test_confidence_that_nobody_compared_is_not_used_silently(recwarn: pytest.WarningsRecorder) -> None:
    learner = small_learner(training="paper")
    learner.learn(digits("zero", "one"))
    image = digits("zero", last=1)[0][0]
    learner.predict(image)
    assert not recwarn.list
    with pytest.warns(CalibrationWarning, match="not calibrated"):
        learner.predict(image, unknown_below=0.9)
    learner.learn(digits("zero", "one", "two", first=40, last=None), training="standard", epochs_scale=0.005)
    assert learner.knowledge.num_calibration_images > 0
    recwarn.clear()
    learner.predict(image, unknown_below=0.9)
    assert not recwarn.list


def test_the_report_and_the_history_tell_what_happened(learner: Learner) -> None:
    told: list[Event] = []
    report = learner.learn(digits("two", "three"), epochs_scale=0.02, listener=told.append)
    assert [entry.name for entry in report.held_out.known] == ["zero", "one"]
    assert [entry.name for entry in report.held_out.new] == ["two", "three"]
    assert report.num_trained + report.num_held_out == 80
    facts = "2 new classes", f"{report.num_trained} photos", f"{report.held_out.num_right} of"
    assert all(fact in str(report) for fact in facts)
    assert report.variants.keys() == {"boosted", "compressed"}
    assert report.variants["compressed"] == report.held_out.accuracy
    (boosted,) = [event for event in told if isinstance(event, Evaluated)]
    assert report.variants["boosted"] == pytest.approx((boosted.old_accuracy + boosted.new_accuracy) / 2)
    assert {check.kind for check in report.checks} == {"held-out", "exemplar"}
    first, second = learner.knowledge.history
    assert second["new_classes"] == ["two", "three"]
    assert second["seconds"] == report.seconds, "rounded once, so that a half second is not rounded up and then down"
    assert second["checks"]["held-out"]["known_before"] == report.held_out.known_before
    assert second["epochs"] == {"boost": 3, "compress": 3}
    assert first["epochs"] == {"learn": 4}


def test_a_learn_that_holds_out_nothing_keeps_what_was_held_out_before() -> None:
    learner = small_learner()
    learner.learn(digits("zero", "one", "two", last=None))
    held_out, temperature, num_images = learner.knowledge.held_out.memory, learner.knowledge.temperature, 43
    assert held_out.counts.tolist() == [2, 2, 2]
    assert (learner.knowledge.num_calibration_images, temperature != 1) == (num_images, True)
    told: list[Event] = []
    report = learner.learn(digits("three"), training="paper", epochs_scale=0.005, listener=told.append)
    assert report.num_held_out == 0
    kept = learner.knowledge.held_out.memory
    assert kept.counts.tolist() == [2, 2, 2, 0]
    assert torch.equal(kept.stack_of(0).tensor, held_out.stack_of(0).tensor)
    assert learner.knowledge.exemplars.memory.counts.tolist() == [13] * 4, "15 a class in all"
    assert (learner.knowledge.temperature, learner.knowledge.num_calibration_images) == (temperature, num_images)
    assert [entry.name for entry in report.held_out.known] == ["zero", "one", "two"]
    assert any(isinstance(event, Evaluated) for event in told)


NAMES = ("cat", "dog", "owl")


def hand_made() -> UpdateCheck:
    """Two known classes and a new one. Cat: 3 of 4 before, 2 of 4 after, one lost. Dog: 1 of 2 before and after."""
    labels = [0, 0, 0, 0, 1, 1, 2]
    before = [0, 0, 0, 1, 1, 0, 0]
    after = [0, 0, 2, 1, 0, 1, 2]
    return compare("held-out", labels, before, after, NAMES, num_known=2)


def test_accuracy_by_class_its_means_over_classes_and_negative_flips_by_hand() -> None:
    check = hand_made()
    cat, dog, owl = check.classes
    assert (cat.before, cat.after, cat.num_negative_flips) == (75.0, 50.0, 1)
    assert (dog.before, dog.after, dog.num_negative_flips) == (50.0, 50.0, 1)
    assert (owl.before, owl.after, owl.num_negative_flips) == (None, 100.0, 0)
    assert check.num_negative_flips == 2
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


def check_of(kind: str, num_images: int, num_right_after: int) -> UpdateCheck:
    after = np.r_[np.zeros(num_right_after, int), np.ones(num_images - num_right_after, int)]
    return compare(kind, np.zeros(num_images, int), np.zeros(num_images, int), after, NAMES, num_known=1)


def test_enough_held_out_images_decide_alone_whatever_the_exemplars_say() -> None:
    forgotten = check_of("held-out", MIN_HELD_OUT, MIN_HELD_OUT // 2)
    remembered = check_of("exemplar", 1000, 1000)
    assert deciding([forgotten, remembered]) == forgotten
    message = problem([forgotten, remembered], max_drop=5)
    assert all(fact in message for fact in ("100.0 to 50.0 %", "20 unseen", "5 points"))
    assert "worst: 'cat', 100 to 50 %" in message


def test_a_class_without_held_out_images_is_judged_by_its_exemplars() -> None:
    """Many held-out images of cats, still right; dogs and owls, of which there are exemplars alone, are forgotten."""
    cats = compare("held-out", [0] * 25, [0] * 25, [0] * 25, NAMES, num_known=3)
    labels = np.repeat(np.arange(3), 20)
    exemplars = compare("exemplar", labels, labels, np.zeros_like(labels), NAMES, num_known=3)
    found = deciding([cats, exemplars])
    assert [(entry.name, entry.num_images, entry.after) for entry in found.classes] == [
        ("cat", 25, 100.0),
        ("dog", 20, 0.0),
        ("owl", 20, 0.0),
    ]
    message = problem([cats, exemplars], max_drop=5)
    assert all(fact in message for fact in ("100.0 to 33.3 %", "65 unseen and exemplar"))


def test_new_classes_do_not_decide() -> None:
    labels = [0] * MIN_HELD_OUT + [1] * MIN_HELD_OUT
    check = compare("held-out", labels, [0] * 2 * MIN_HELD_OUT, [0] * 2 * MIN_HELD_OUT, NAMES, num_known=1)
    found = deciding([check])
    assert [entry.name for entry in found.classes] == ["cat"]
    assert deciding([compare("held-out", [1], [0], [0], NAMES, num_known=1)]) is None


def test_few_held_out_images_decide_together_with_the_exemplars() -> None:
    few, many = check_of("held-out", MIN_HELD_OUT - 1, 0), check_of("exemplar", 181, 181)
    found = deciding([few, many])
    assert found.num_known_images == 200
    assert found.drop == pytest.approx(9.5)
    assert problem([few, many], max_drop=10) is None
    assert problem([few, many], max_drop=9) is not None


def test_a_loss_is_large_if_it_is_many_points_and_no_chance() -> None:
    lost = large_loss([check_of("held-out", 20, 11)])
    assert lost is not None
    assert all(fact in lost for fact in ("45.0 points", "100.0 to 55.0 %", "20 unseen images"))
    assert large_loss([check_of("held-out", 20, 17)]) is None, "three of 20 may be chance"
    assert large_loss([check_of("held-out", 1000, 910)]) is None, "nine points are usual"
    before, after = [0] * 12 + [1] * 8, [1] * 9 + [0] * 3 + [0] * 6 + [1] * 2
    swapped = compare("held-out", [0] * 20, before, after, NAMES, num_known=1)
    assert swapped.drop == 15
    assert large_loss([swapped]) is None, "nine became wrong and six right"
    assert large_loss([compare("held-out", [0, 1], None, [1, 0], NAMES, num_known=0)]) is None
