"""The frame of every method: what is random in a task depends on the task."""

import copy
from dataclasses import replace

import pytest
import torch
from small_course import digits, new_method
from torch import Tensor, nn

from foster.data.task import Task
from foster.errors import TrainingError
from foster.methods.base import Method
from foster.methods.replay import Replay
from foster.settings.methods import ReplaySettings
from foster.training.phase import Phase


def untrained() -> Method[ReplaySettings]:
    """Knows the four classes of the first task by name only."""
    method = new_method(Replay, ReplaySettings())
    method.network = method.new_network([4])
    for class_id in range(4):
        method.memory.remember(class_id, digits()[0].new_images.of_classes(class_id, class_id + 1).images[:1])
    return method


def second_task(index: int) -> Task:
    """The same two new classes, under any number."""
    return Task(index, 4, 2, digits()[1].new_images)


def test_a_method_of_ones_own_without_a_network_is_told_where_to_set_it() -> None:
    method = new_method(Replay, ReplaySettings())
    with pytest.raises(TrainingError, match=r"^method foster\.methods\.replay\.Replay has no network: .*learn_first"):
        _ = method.network
    with pytest.raises(TrainingError, match=r"Replay: self\.network is a Network, not a Linear; self\.new_network"):
        method.network = nn.Linear(2, 2)


def test_a_method_of_ones_own_without_phases_is_told_so() -> None:
    method = new_method(Method, ReplaySettings())
    with pytest.raises(TrainingError, match=r"^method foster\.methods\.base\.Method has no phases\(\)"):
        method.phases(digits()[0])


def test_fresh_rows_of_the_head_depend_on_the_task() -> None:
    method = untrained()

    def fresh_rows(index: int) -> Tensor:
        phase = next(iter(copy.deepcopy(method).phases(second_task(index))))
        assert isinstance(phase, Phase)
        return phase.network.get_parameter("head.weight").detach()[4:]

    assert torch.equal(fresh_rows(1), fresh_rows(1))
    assert not torch.equal(fresh_rows(1), fresh_rows(2))


def test_a_random_selection_of_exemplars_depends_on_the_task() -> None:
    method = untrained()
    method.workplace = replace(method.workplace, selection="random")

    def chosen(index: int) -> Tensor:
        chooser = copy.deepcopy(method)
        chooser.remember(second_task(index))
        return chooser.memory.stack_of(4)

    assert torch.equal(chosen(1), chosen(1))
    assert not torch.equal(chosen(1), chosen(2))
