"""Fine-tune and replay: what they train on, with which loss, and what they keep."""

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from foster.data.augmentation.pipeline import Augmentation
from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.methods.base import Method, Workplace
from foster.methods.finetune import Finetune
from foster.methods.replay import Replay
from foster.seeding import Address
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
    workplace = Workplace("resnet8", 2, ENGINE.infer, CPU)
    if name == "finetune":
        return Finetune(FinetuneSettings(first=FIRST, later=LATER), ExemplarMemory(), workplace)
    return Replay(ReplaySettings(first=FIRST, later=LATER), ExemplarMemory(per_class=QUOTA), workplace)


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
        for step in method.phases(task):
            assert not isinstance(step, Evaluate)
            before = values(step.network)
            train(step)
            tasks.append(Learned(task, step, before, values(step.network)))
    return Course(method, *tasks)


def accuracy(network: nn.Module, first: int, last: int) -> float:
    images = all_images().of_classes(first, last)
    return (ENGINE.infer(network, images.images).logits.argmax(1) == images.labels).double().mean().item()


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    return (logits.exp().sum(1).log() - logits[torch.arange(len(labels)), labels]).mean().item()


@pytest.mark.parametrize("name", ["finetune", "replay"])
def test_both_have_one_phase_a_task_with_their_two_schedules(name: str) -> None:
    found = [(learned.phase.name, learned.phase.fit, learned.task.num_total) for learned in course(name)[1:]]
    assert found == [("learn", FIRST, 3), ("learn", LATER, 5)]
    assert course(name).second.after["head.weight"].shape == (5, 64)


@pytest.mark.parametrize(("name", "counts"), [("finetune", [0, 0, 0, 12, 12]), ("replay", [4, 4, 4, 12, 12])])
def test_only_replay_sees_exemplars_of_known_classes(name: str, counts: list[int]) -> None:
    data = [learned.phase.data.class_counts(5).tolist() for learned in course(name)[1:]]
    assert data == [[12, 12, 12, 0, 0], counts]
    assert course(name).method.memory.counts.tolist() == ([] if name == "finetune" else [4] * 5)


@pytest.mark.parametrize("name", ["finetune", "replay"])
def test_a_later_task_starts_from_the_network_of_the_one_before_with_new_rows(name: str) -> None:
    method, first, second = course(name)
    assert second.phase.network is method.network
    for key, value in first.after.items():
        kept = second.before[key]
        assert torch.equal(kept[:3] if key.startswith("head.") else kept, value), key


@pytest.mark.parametrize("name", ["finetune", "replay"])
def test_replay_has_cross_entropy_over_all_classes_and_fine_tuning_over_the_new_ones(name: str) -> None:
    method, _, (task, phase, _, _) = course(name)
    images = (task.new_images.images.float() / 255 - 0.5) / 0.25
    labels = task.new_images.labels
    method.network.eval()
    with torch.no_grad():
        found = phase.objective(images, labels)
        logits = method.network(images).logits
    over_all, over_new = cross_entropy(logits, labels), cross_entropy(logits[:, 3:], labels - 3)
    assert list(found) == ["L_CE"]
    assert found["L_CE"].item() == pytest.approx(over_all if name == "replay" else over_new, rel=1e-3, abs=1e-5)
    assert over_all != pytest.approx(over_new, rel=1e-2)


def test_fine_tuning_leaves_the_old_rows_of_the_head_to_weight_decay_alone() -> None:
    second = course("finetune").second
    for name in ("head.weight", "head.bias"):
        ratio = second.after[name][:3] / second.before[name][:3]
        assert torch.allclose(ratio, ratio.mean().expand_as(ratio), atol=1e-4), "all shrink by the same factor"
        assert 0.9 < ratio.mean() < 1


def test_fine_tuning_forgets_and_replay_remembers_more() -> None:
    forgetful, careful = course("finetune").method.network, course("replay").method.network
    assert accuracy(forgetful, 3, 5) > 0.9
    assert accuracy(careful, 3, 5) > 0.9
    assert accuracy(careful, 0, 3) > accuracy(forgetful, 0, 3) + 0.3
