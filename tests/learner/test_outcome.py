"""What a learn leaves: its report, its entry of the history, what was held out, and how sure answers may be."""

from typing import Any

import torch
from small_learners import digits, longer_learner, small_learner

from foster.events import Evaluated, Event
from foster.learner.learner import Learner


def known(learner: Learner) -> Any:
    assert learner.knowledge is not None
    return learner.knowledge


def test_the_report_and_the_history_tell_what_happened(learner: Learner) -> None:
    report = learner.learn(digits("two", "three"), epochs_scale=0.02)
    assert report.held_out is not None
    assert [entry.name for entry in report.held_out.known] == ["zero", "one"]
    assert [entry.name for entry in report.held_out.new] == ["two", "three"]
    assert report.num_trained + report.num_held_out == 80
    assert report.variants.keys() == {"boosted", "compressed"}
    assert report.variants["compressed"] == report.held_out.accuracy
    assert {check.kind for check in report.checks} == {"held-out", "exemplar"}
    assert learner.knowledge is not None
    first, second = learner.knowledge.history
    assert second["new_classes"] == ["two", "three"]
    assert second["seconds"] == report.seconds, "rounded once, so that a half second is not rounded up and then down"
    assert second["checks"]["held-out"]["known_before"] == report.held_out.known_before
    assert second["epochs"] == {"boost": 3, "compress": 3}
    assert first["epochs"] == {"learn": 4}


def test_nothing_is_held_out_where_the_preset_says_so() -> None:
    learner = longer_learner(training="paper")
    report = learner.learn(digits("zero", "one"))
    assert (report.num_held_out, report.checks) == (0, ())
    assert learner.knowledge is not None
    assert learner.knowledge.num_calibration_images == 0
    assert learner.knowledge.exemplars.counts.tolist() == [30, 30]


def test_a_learn_that_holds_out_nothing_keeps_what_was_held_out_before() -> None:
    learner = small_learner()
    learner.learn(digits("zero", "one", "two", last=None))
    held_out, temperature, num_images = known(learner).held_out, known(learner).temperature, 43
    assert held_out.counts.tolist() == [2, 2, 2]
    assert (known(learner).num_calibration_images, temperature != 1) == (num_images, True)
    told: list[Event] = []
    report = learner.learn(digits("three"), training="paper", epochs_scale=0.005, listener=told.append)
    assert report.num_held_out == 0
    kept = known(learner).held_out
    assert kept.counts.tolist() == [2, 2, 2, 0]
    assert torch.equal(kept.stack_of(0).tensor, held_out.stack_of(0).tensor)
    assert known(learner).exemplars.counts.tolist() == [13] * 4, "15 a class in all"
    assert (known(learner).temperature, known(learner).num_calibration_images) == (temperature, num_images)
    assert report.held_out is not None
    assert [entry.name for entry in report.held_out.known] == ["zero", "one", "two"]
    assert any(isinstance(event, Evaluated) for event in told)
