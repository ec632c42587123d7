"""The frame of every method: what is random in a task depends on the task."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest
import torch
from small_course import digits, engine, new_method
from torch import Tensor

from foster.data.task import Task
from foster.errors import TrainingError
from foster.methods.base import Method, checked_phases
from foster.methods.replay import Replay
from foster.networks.network import Network
from foster.settings.methods import ReplaySettings
from foster.training.phase import Evaluate, Phase


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


class Forgetful(Replay):
    """Replay that derives something from what it was given, and keeps whatever a test says."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.table: dict[str, Tensor] = {"nothing": torch.zeros(1)}
        self.of_memory = [self.memory, None]
        self.nothing = None
        self.keep: Callable[[Forgetful], None] = lambda method: None

    @cached_property
    def temperature(self) -> float:
        return 2.0

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield from super().phases(task)
        assert self.temperature
        self.keep(self)


def grown(method: Forgetful) -> None:
    method.table["logits"] = torch.ones(2)


def overwritten(method: Forgetful) -> None:
    method.table["nothing"] += 1


def replaced(method: Forgetful) -> None:
    method.table = {}


def added(method: Forgetful) -> None:
    method.old_network = method.network.with_new_classes(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keep", "name"), [(grown, "table"), (overwritten, "table"), (replaced, "table"), (added, "old_network")]
)
def test_what_a_method_keeps_in_self_for_the_next_task_is_refused(keep: Callable[[Forgetful], None], name: str) -> None:
    method = new_method(Forgetful, ReplaySettings())
    assert isinstance(method, Forgetful)
    assert len(list(checked_phases(method, method.phases(digits()[0])))) == 1, (
        "the network and the memory are what it may keep"
    )
    method.keep = keep
    with pytest.raises(TrainingError, match=rf"Forgetful .*self\.{name} .*register_buffer"):
        list(checked_phases(method, method.phases(digits()[0])))


def buffer_of_later(network: Network) -> None:
    network.branches[0].register_buffer("means", torch.ones(2))


def longer_buffer(network: Network) -> None:
    network.branches[0].importance = torch.ones(3)


def plain_tensor(network: Network) -> None:
    network.branches[0].centres = torch.ones(2)


@pytest.mark.parametrize(
    ("keep", "name"), [(buffer_of_later, "means"), (longer_buffer, "importance"), (plain_tensor, "centres")]
)
def test_tensors_of_the_first_network_that_a_resumed_run_would_not_have_are_refused(
    keep: Callable[[Network], None], name: str
) -> None:
    class Registering(Forgetful):
        def new_network(self, task_sizes: Sequence[int]) -> Network:
            network = super().new_network(task_sizes)
            network.branches[0].register_buffer("importance", torch.zeros(2))
            network.branches[0].centres = torch.zeros(2)
            return network

    method = new_method(Registering, ReplaySettings())
    assert isinstance(method, Registering)
    assert len(list(checked_phases(method, method.phases(digits()[0])))) == 1
    del method.network
    method.keep = lambda method: keep(method.network)
    with pytest.raises(TrainingError, match=rf"Registering .*branches\.0\.{name}.*register_buffer"):
        list(checked_phases(method, method.phases(digits()[0])))


def test_fresh_rows_of_the_head_depend_on_the_task() -> None:
    method = untrained()

    def fresh_rows(index: int) -> Tensor:
        phase = next(iter(copy.deepcopy(method).phases(second_task(index))))
        assert isinstance(phase, Phase)
        return phase.network.get_parameter("head.weight").detach()[4:]

    assert torch.equal(fresh_rows(1), fresh_rows(1))
    assert not torch.equal(fresh_rows(1), fresh_rows(2))


def test_batches_are_the_images_in_order_with_their_labels() -> None:
    method, images = untrained(), digits()[0].new_images
    method.context = replace(method.context, normalised=engine().normalised)
    seen, labels = map(torch.cat, zip(*method.batches(images, 7), strict=True))
    torch.testing.assert_close(seen, engine().normalised(images.stack))
    assert torch.equal(labels, images.labels)


def test_a_random_selection_of_exemplars_depends_on_the_task() -> None:
    method = untrained()
    method.context = replace(method.context, selection="random")

    def chosen(index: int) -> Tensor:
        chooser = copy.deepcopy(method)
        chooser.remember(second_task(index))
        return chooser.memory.stack_of(4).tensor

    assert torch.equal(chosen(1), chosen(1))
    assert not torch.equal(chosen(1), chosen(2))
