"""Learns after the first: which task they are, and what is left out where they bring no new class."""

import copy

import torch
from small_learners import digits, small_learner

from foster.events import Event, PhaseStarted, TaskStarted
from foster.learner.learner import Learner


def head_weights(learner: Learner) -> torch.Tensor:
    assert learner.knowledge is not None
    return learner.knowledge.network.get_parameter("head.weight").detach()


def test_the_third_learn_is_task_two_and_has_the_second_value_of_a_list() -> None:
    learner = small_learner(foster={"beta_boost": [0.5, 0.9]})
    learner.learn(digits("zero", "one", last=20))
    learner.learn(digits("two", last=20))
    told: list[Event] = []
    found = {}
    for betas in ((0.5, 0.9), (0.1, 0.9), (0.5, 0.1)):
        third = copy.deepcopy(learner)
        third.learn(digits("three"), listener=told.append, foster={"beta_boost": betas})
        found[betas] = head_weights(third)
    assert [event.task for event in told if isinstance(event, TaskStarted)] == [2, 2, 2]
    assert torch.equal(found[0.5, 0.9], found[0.1, 0.9])
    assert not torch.equal(found[0.5, 0.9], found[0.5, 0.1])


def test_where_no_class_is_new_nothing_is_aligned() -> None:
    learner = small_learner(foster={"alignment": "weights", "align_teacher": True, "align_student": True})
    learner.learn(digits("zero", "one"))
    told: list[Event] = []
    report = learner.learn(digits("one", first=50, last=90), listener=told.append)
    assert [event.phase for event in told if isinstance(event, PhaseStarted)] == ["boost", "compress"]
    assert (report.new_classes, report.more_of) == ((), {"one": 40})
