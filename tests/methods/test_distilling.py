"""What LwF, iCaRL, WA and BiC have in common: a teacher that stays, loss terms, a share of the memory, weights."""

import copy

import pytest
import torch
from distilling_course import (
    ce,
    course_of,
    digits,
    engine_for,
    kd,
    learn,
    new_method,
    short_course_of,
)

from foster.networks.freezing import is_frozen

DISTILLING = ["lwf", "icarl", "wa", "bic"]
WITH_MEMORY = ["icarl", "wa", "bic"]


@pytest.mark.parametrize("name", DISTILLING)
def test_the_teacher_is_the_network_before_the_task_and_never_changes(name: str) -> None:
    course = short_course_of(name)
    (learned,) = course.named("learn")
    (teacher,) = learned.phase.teachers
    assert is_frozen(teacher)
    before, now = course.network_after_task[0], teacher.state_dict()
    assert before.keys() == now.keys()
    assert all(torch.equal(before[key], now[key]) for key in before)


@pytest.mark.parametrize(
    ("name", "weight_ce", "weight_kd"),
    [("lwf", 1, 3), ("icarl", 1, 1), ("wa", 1, 2), ("bic", 3 / 7, 4 / 7)],
)
def test_the_loss_terms_are_those_of_the_published_runs(name: str, weight_ce: float, weight_kd: float) -> None:
    # A course of its own: what is asked of the network below changes its BatchNorm statistics.
    learned = learn(new_method(name), num_tasks=2).named("learn")[0]
    batch = learned.phase.data.select(torch.arange(0, 90, 9))
    images = engine_for(digits()).prepare(batch.images)
    network = copy.deepcopy(learned.phase.network).train()
    logits, old_logits = network(images).logits, learned.phase.teachers[0](images).logits
    num_known = learned.task.num_known
    is_lwf = name == "lwf"
    expected_ce = ce(logits[:, num_known:], batch.labels - num_known) if is_lwf else ce(logits, batch.labels)
    with torch.no_grad():
        learned.phase.network.train()
        terms = learned.phase.objective(images, batch.labels)
    assert terms.keys() == {"L_CE", "L_KD"}
    torch.testing.assert_close(terms["L_CE"], (weight_ce * expected_ce).detach())
    torch.testing.assert_close(terms["L_KD"], (weight_kd * kd(logits[:, :num_known], old_logits)).detach())


@pytest.mark.parametrize("name", DISTILLING)
def test_saved_weights_load_into_a_new_network_of_the_same_tasks(name: str) -> None:
    method = course_of(name).method
    loaded = method.new_network(digits().task_sizes)
    loaded.load_state_dict(method.network.state_dict())
    images = digits().test_up_to(0).images
    saved_output, loaded_output = (method.context.infer(network, images) for network in (method.network, loaded))
    assert torch.equal(saved_output.logits, loaded_output.logits)
    assert loaded.num_parameters() == method.network.num_parameters()


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_the_memory_holds_an_equal_share_of_every_class_seen(name: str) -> None:
    assert course_of(name).method.memory.counts.tolist() == [6] * 10
