"""Three tasks of digits, learned by a method that distils the old network into the grown one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foster.data.feed import ResidentFeed
from foster.data.memory import ExemplarMemory
from foster.data.scenario import Scenario
from foster.data.sources import Dataset, load
from foster.data.task import Task
from foster.methods.base import Context, Method
from foster.methods.bic import BiasCorrection
from foster.methods.icarl import Icarl
from foster.methods.lwf import LearningWithoutForgetting
from foster.methods.wa import WeightAlignment
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.methods import BicSettings, IcarlSettings, LwfSettings, WaSettings
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Evaluate, Phase

FIT = FitSettings(epochs=3)
SHORT = FitSettings(epochs=1)
SEED = 17
Build = Callable[[ExemplarMemory, Context, FitSettings], Method[Any]]
BUILD: dict[str, Build] = {
    "lwf": lambda memory, context, fit: LearningWithoutForgetting(LwfSettings(first=fit, later=fit), memory, context),
    "icarl": lambda memory, context, fit: Icarl(IcarlSettings(first=fit, later=fit), memory, context),
    "wa": lambda memory, context, fit: WeightAlignment(WaSettings(first=fit, later=fit), memory, context),
    "bic": lambda memory, context, fit: BiasCorrection(
        BicSettings(first=fit, later=fit, correction=fit), memory, context
    ),
}


class Trained(NamedTuple):
    """One phase that was trained, with the network's values before and after."""

    task: Task
    phase: Phase
    before: dict[str, Tensor]
    after: dict[str, Tensor]


@dataclass
class Course:
    """All that a method did in a scenario."""

    method: Method[Any]
    phases: list[Trained] = field(default_factory=list)
    network_after_task: list[dict[str, Tensor]] = field(default_factory=list)

    def named(self, name: str) -> list[Trained]:
        """The phases of this name after the first task."""
        return [trained for trained in self.phases if trained.phase.name == name and not trained.task.is_first]


def values(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


@cache
def digits() -> Scenario:
    """Forty images of every digit, in tasks of 4, 3 and 3 classes."""
    whole = load("digits")
    few = torch.cat([(whole.train.labels == k).nonzero()[:40, 0] for k in range(10)])
    dataset = Dataset(whole.name, whole.train.select(few), whole.test, whole.mean, whole.std)
    return Scenario(dataset, base_classes=4, increment=3, class_order=range(10))


def engine_for(scenario: Scenario) -> Engine:
    return Engine(torch.device("cpu"), scenario.mean, scenario.std)


def new_method(name: str, fit_settings: FitSettings = SHORT, memory: ExemplarMemory | None = None) -> Method[Any]:
    context = Context("resnet8", SEED, engine_for(digits()).infer, torch.device("cpu"))
    return BUILD[name](memory or ExemplarMemory(total=60), context, fit_settings)


def task_of(method: Method[Any], index: int) -> Task:
    data = digits()[index]
    return replace(data, exemplars=method.memory.exemplars(data.class_names))


def train(phase: Phase, task: Task) -> Trained:
    before = values(phase.network)
    feed = ResidentFeed(
        phase.data, Augmentation(), 32, Address(SEED, "feed", task.index, phase.name), torch.device("cpu")
    )
    for _ in fit(phase, feed, engine_for(digits()), lambda event: None, task=task.index):
        pass
    return Trained(task, phase, before, values(phase.network))


def learn(method: Method[Any], num_tasks: int) -> Course:
    course = Course(method)
    for index in range(num_tasks):
        task = task_of(method, index)
        for phase in method.phases(task):
            assert not isinstance(phase, Evaluate)
            course.phases.append(train(phase, task))
        course.network_after_task.append(values(method.network))
    return course


@cache
def course_of(name: str) -> Course:
    """All tasks learned, once for all the tests."""
    return learn(new_method(name, FIT), num_tasks=3)


@cache
def short_course_of(name: str) -> Course:
    """Two tasks learned hardly at all: for what does not depend on how well they are learned."""
    return learn(new_method(name), num_tasks=2)


def log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum(1, keepdim=True).log()


def kd(logits: Tensor, old_logits: Tensor) -> Tensor:
    """KD_2, written out."""
    return (
        -((old_logits / 2).exp() / (old_logits / 2).exp().sum(1, keepdim=True) * log_softmax(logits / 2)).sum(1).mean()
    )


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return -log_softmax(logits)[torch.arange(len(labels)), labels].mean()
