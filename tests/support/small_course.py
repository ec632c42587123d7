"""Three tasks of a few digits, and what it takes to train a method on them phase by phase."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foster.data.feed import ResidentFeed
from foster.data.memory import ExemplarMemory
from foster.data.scenario import Scenario
from foster.data.sources import load
from foster.data.task import Task
from foster.events import EpochEnded, Event
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks import BACKBONES
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Evaluate, Phase

CPU = torch.device("cpu")
SEED = 5
SHORT = FitSettings(epochs=1, learning_rate=0.05)
TASK_SIZES = (4, 2, 3)


@cache
def digits() -> Scenario:
    """Thirty images of nine digits, in tasks of 4, 2 and 3 classes."""
    whole = load("digits")
    few = torch.cat([(whole.train.labels == k).nonzero()[:30, 0] for k in range(9)])
    names = whole.class_names[:9]
    train, test = (replace(part, class_names=names) for part in (whole.train.select(few), whole.test.of_classes(0, 9)))
    return Scenario(replace(whole, train=train, test=test), "digits", range(9), TASK_SIZES)


def engine() -> Engine:
    return Engine(CPU, digits().mean, digits().std)


def new_method(
    kind: type[Method[Any]],
    settings: MethodSettings,
    memory: ExemplarMemory | None = None,
) -> Method[Any]:
    context = Context(BACKBONES[kind.backbone_name("resnet8")], SEED, engine().infer, CPU)
    return kind(settings, memory or ExemplarMemory(per_class=6), context)


def task_of(method: Method[Any], index: int) -> Task:
    data = digits()[index]
    return replace(data, exemplars=method.memory.exemplars(data.class_names))


class Trained(NamedTuple):
    """A phase that was trained, with the network's values before and after, and the losses of its last epoch."""

    task: Task
    phase: Phase
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    losses: dict[str, float]

    def changed(self, prefix: str) -> set[bool]:
        """Whether the tensors whose names begin with `prefix` changed: {True}, {False} or both."""
        names = [name for name in self.before if name.startswith(prefix)]
        assert names, f"there is no '{prefix}'"
        return {not torch.equal(self.before[name], self.after[name]) for name in names}


@dataclass
class Course:
    """All phases that a method has trained, and its network's values after each task."""

    method: Method[Any]
    phases: list[Trained] = field(default_factory=list)
    network_after_task: list[dict[str, Tensor]] = field(default_factory=list)

    def named(self, name: str) -> list[Trained]:
        """The phases of this name after the first task."""
        return [trained for trained in self.phases if trained.phase.name == name and not trained.task.is_first]


def train(phase: Phase, task: Task, computing: Engine | None = None, batch_size: int = 32) -> Trained:
    before, losses = values(phase.network), dict[str, float]()

    def listen(event: Event) -> None:
        if isinstance(event, EpochEnded):
            losses.update(event.losses)

    feed = ResidentFeed(phase.data, Augmentation(), batch_size, Address(SEED, "feed", task.index, phase.name), CPU)
    for _ in fit(phase, feed, computing or engine(), listen, task=task.index):
        pass
    return Trained(task, phase, before, values(phase.network), losses)


def learn(method: Method[Any], num_tasks: int) -> Course:
    """Train all phases of the first tasks."""
    course = Course(method)
    for index in range(num_tasks):
        task = task_of(method, index)
        course.phases += [train(part, task) for part in method.phases(task) if not isinstance(part, Evaluate)]
        course.network_after_task.append(values(method.network))
    return course


def named_method(name: str, memory: ExemplarMemory | None = None) -> Method[Any]:
    """A method of ours with one epoch for each of its phases."""
    kind, schedule = METHOD_SETTINGS[name], FitSettings(epochs=1)
    schedules = {key: schedule for key, value in kind() if isinstance(value, FitSettings)}
    return new_method(method_class(name), kind(**schedules), memory)


@cache
def course_of(name: str) -> Course:
    """All tasks, learned once for all the tests."""
    return learn(named_method(name), len(TASK_SIZES))


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def changed(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    """The names of parameters and buffers that are no longer what they were."""
    return {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}


def normalised(images: Tensor) -> Tensor:
    """uint8 images as an objective takes them."""
    return engine().prepare(images)


def terms(phase: Phase, task: Task) -> dict[str, float]:
    """The phase's loss terms for all its task's images, with frozen BatchNorm statistics."""
    phase.network.eval()
    with torch.no_grad():
        found = phase.objective(normalised(task.training.images), task.training.labels)
    return {name: float(value) for name, value in found.items()}
