"""Two tasks of noisy patterns, learned by fine-tuning and by replay."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.methods.base import Context, Method
from foster.methods.finetune import Finetune
from foster.methods.replay import Replay
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.methods import FinetuneSettings, ReplaySettings
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Evaluate, Phase

CPU = torch.device("cpu")
ENGINE = Engine(CPU, mean=(0.5,) * 3, std=(0.25,) * 3)
FIRST, LATER = FitSettings(epochs=8, learning_rate=0.1), FitSettings(epochs=14, learning_rate=0.15)
NAMES = tuple("abcde")
TASK_SIZES = (3, 2)
PER_CLASS, QUOTA = 12, 4


@cache
def all_images() -> ImageSet:
    """Five classes, each a pattern with noise."""
    chance = torch.Generator().manual_seed(5)
    patterns = torch.rand(5, 1, 3, 8, 8, generator=chance)
    noise = torch.rand(5, PER_CLASS, 3, 8, 8, generator=chance)
    pixels = (255 * (0.4 * patterns + 0.6 * noise)).to(torch.uint8).flatten(0, 1)
    return ImageSet(pixels, torch.arange(5).repeat_interleave(PER_CLASS), NAMES)


def new_method(name: str) -> Method[Any]:
    context = Context("resnet8", 2, ENGINE.infer, CPU)
    if name == "finetune":
        return Finetune(FinetuneSettings(first=FIRST, later=LATER), ExemplarMemory(), context)
    return Replay(ReplaySettings(first=FIRST, later=LATER), ExemplarMemory(per_class=QUOTA), context)


def task_of(method: Method[Any], index: int) -> Task:
    num_known, num_new = sum(TASK_SIZES[:index]), TASK_SIZES[index]
    of_task = all_images().of_classes(num_known, num_known + num_new)
    new_images = ImageSet(of_task.images, of_task.labels, NAMES[: num_known + num_new])
    return Task(index, num_known, num_new, new_images, method.memory.exemplars(new_images.class_names))


def train(phase: Phase) -> None:
    feed = ResidentFeed(phase.data, Augmentation(), 16, Address(2, "feed"), CPU)
    for _ in fit(phase, feed, ENGINE, lambda event: None, task=0):
        pass


class Learned(NamedTuple):
    """One task: its only phase, and the network's values before and after it."""

    task: Task
    phase: Phase
    before: dict[str, Tensor]
    after: dict[str, Tensor]


class Course(NamedTuple):
    method: Method[Any]
    first: Learned
    second: Learned


def values(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


@cache
def course(name: str) -> Course:
    """Both tasks, learned one after the other."""
    method, tasks = new_method(name), []
    for index in range(len(TASK_SIZES)):
        task = task_of(method, index)
        for part in method.phases(task):
            assert not isinstance(part, Evaluate)
            before = values(part.network)
            train(part)
            tasks.append(Learned(task, part, before, values(part.network)))
    return Course(method, *tasks)


def accuracy(network: nn.Module, first: int, last: int) -> float:
    images = all_images().of_classes(first, last)
    return (ENGINE.infer(network, images.images).logits.argmax(1) == images.labels).double().mean().item()


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    return (logits.exp().sum(1).log() - logits[torch.arange(len(labels)), labels]).mean().item()


def starts_from_the_network_before(name: str) -> bool:
    """Whether the second task trains the method's network as the first has left it, with new rows in the head."""
    method, first, second = course(name)
    old_rows = {key: value[:3] if key.startswith("head.") else value for key, value in second.before.items()}
    return second.phase.network is method.network and all(
        torch.equal(old_rows[key], value) for key, value in first.after.items()
    )


def losses_of(name: str) -> tuple[dict[str, float], Tensor, Tensor]:
    """Of the new images in the second task: every loss term, the logits that it belongs to, and the labels."""
    method, _, (task, phase, _, _) = course(name)
    images = (task.new_images.images.float() / 255 - 0.5) / 0.25
    method.network.eval()
    with torch.no_grad():
        found = phase.objective(images, task.new_images.labels)
        logits = method.network(images).logits
    return {term: value.item() for term, value in found.items()}, logits, task.new_images.labels
