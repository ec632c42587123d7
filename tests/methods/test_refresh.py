"""More images of known classes alone: near to what was known, trained where the method trains, and chosen from anew."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from herding_reference import herding
from small_course import changed, learn, new_method, normalised, terms, train, values
from torch.nn.functional import cross_entropy

from foster.data.images import ImageSet
from foster.data.sources import load
from foster.data.task import Task
from foster.methods import method_class
from foster.methods.base import Method
from foster.methods.refresh import grown_sizes, refresh
from foster.networks.modules import is_frozen
from foster.settings.methods import METHOD_SETTINGS
from foster.training.phase import Evaluate, Phase

NUM_KNOWN, QUOTA = 6, 6
AGAIN = (1, 4)
"""Of these come more images: a class of the first task and one of the second."""


@cache
def taught_once(name: str) -> Method[Any]:
    method = new_method(method_class(name), METHOD_SETTINGS[name]().scaled(0.005))
    learn(method, 2)
    return method


def taught(name: str) -> Method[Any]:
    """A method that has learned two tasks, every phase for one epoch."""
    return copy.deepcopy(taught_once(name))


@cache
def more_images() -> ImageSet:
    """Twenty images of each class that comes again, of which the method has seen none."""
    whole = load("digits").train
    chosen = torch.cat([(whole.labels == digit).nonzero()[30:50, 0] for digit in AGAIN])
    return ImageSet(whole.images[chosen], whole.labels[chosen], whole.class_names[:NUM_KNOWN])


def task_of_more(method: Method[Any]) -> Task:
    images = more_images()
    return Task(2, NUM_KNOWN, 0, images, method.memory.exemplars(images.class_names))


def refreshed(method: Method[Any]) -> tuple[Phase, Task]:
    """The only phase, trained, and what follows it done."""
    task, phases = task_of_more(method), []
    for phase in refresh(method, task):
        assert not isinstance(phase, Evaluate)
        train(phase, task)
        phases.append(phase)
    (only,) = phases
    return only, task


def test_the_loss_is_cross_entropy_and_distillation_at_temperature_two_over_all_classes() -> None:
    method = taught("replay")
    old_network = copy.deepcopy(method.network).eval()
    phase, task = refreshed(method)
    found = terms(phase, task)
    images, labels = normalised(task.training.images), task.training.labels
    with torch.no_grad():
        old, new = old_network(images).logits, method.network(images).logits
    by_hand = {
        "L_CE": cross_entropy(new, labels).item(),
        "L_KD": cross_entropy(new / 2, (old / 2).softmax(1)).item(),
    }
    assert list(found) == ["L_CE", "L_KD"]
    assert found == pytest.approx(by_hand, rel=1e-4)
    assert (phase.name, phase.network, phase.fit) == ("refresh", method.network, method.settings.later)
    assert phase.data is task.training


def test_the_teacher_stays_the_network_that_was_with_its_statistics() -> None:
    method = taught("replay")
    before = values(method.network)
    given = method.network
    phase, _ = refreshed(method)
    (teacher,) = phase.teachers
    assert is_frozen(teacher)
    assert not changed(before, teacher)
    assert not changed(before, given), "what was known before is not touched"


def test_exemplars_of_classes_that_come_again_are_chosen_anew_by_the_refreshed_network() -> None:
    method = taught("replay")
    before = [method.memory.stack_of(class_id).tensor for class_id in range(NUM_KNOWN)]
    method.memory.keep(was_kept=torch.ones(NUM_KNOWN * QUOTA))
    refreshed(method)
    exemplars = method.memory.exemplars(more_images().class_names)
    assert exemplars is not None
    for class_id in range(NUM_KNOWN):
        kept = method.memory.stack_of(class_id).tensor
        was_kept = [any(torch.equal(image, other) for other in before[class_id]) for image in kept]
        assert exemplars.beside["was_kept"][exemplars.labels == class_id].tolist() == was_kept
        if class_id not in AGAIN:
            assert torch.equal(kept, before[class_id])
            continue
        candidates = torch.cat([more_images().of_classes(class_id, class_id + 1).images, before[class_id]])
        features = method.context.infer(method.network, candidates).features
        assert torch.equal(kept, candidates[herding(features, QUOTA)])
        assert not torch.equal(kept, before[class_id])


@pytest.mark.parametrize(("name", "expected"), [("replay", [2, 1]), ("foster", [2, 0, 1])])
def test_a_task_without_new_classes_counts_where_the_method_trains_its_own_phases(
    name: str, expected: list[int]
) -> None:
    assert grown_sizes(new_method(method_class(name), METHOD_SETTINGS[name]()), [2, 0, 1]) == expected


@pytest.mark.parametrize("name", ["finetune", "lwf"])
def test_a_method_without_a_memory_keeps_no_exemplars(name: str) -> None:
    method = taught(name)
    refreshed(method)
    assert method.memory.num_images == 0


KEPT = {
    "replay": (),
    "podnet": (),
    "coil": (),
    "der": ("branches.0.",),
    "bic": ("head.corrections.",),
}
"""What stays as it was, BatchNorm statistics included; all else is trained, whatever the last phase left frozen."""


@pytest.mark.parametrize("name", KEPT)
def test_everything_is_trained_but_what_the_method_keeps(name: str) -> None:
    method = taught(name)
    before = values(method.network)
    refreshed(method)
    expected = {key for key in before if not key.startswith(KEPT[name])}
    assert len(expected) < len(before) or not KEPT[name]
    assert changed(before, method.network) == expected
