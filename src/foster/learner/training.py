"""The training inside one `learn`: a method's phases on the shared loop, evaluated on held-out images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from foster import events
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import Infer, ranks
from foster.learner.head_start import start_head
from foster.learner.plan import Plan
from foster.methods.base import Method, checked_phases
from foster.methods.refresh import refresh
from foster.training.phase import Evaluate, Phase
from foster.training.task import TaskState, Trainer

LOWER_RATE = 0.1
NUM_LOOKED_AT = 256
LEAST_GAIN = 0.1
"""The share of the way from chance to all right that a trained network must have come, on what it was trained on."""


def has_own_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the method's own story is told: always with new classes, and by some methods also without."""
    return num_new > 0 or method.settings.refreshes_by_phases


@dataclass(frozen=True)
class Trained:
    """The epochs of every phase, and the accuracy of every network evaluated on the way (a mean over classes)."""

    epochs: dict[str, int]
    accuracies: dict[str, float]
    new_accuracies: dict[str, float]
    """The same over the new classes alone."""
    restarts: tuple[str, ...] = ()
    """What was started again, in a line each."""


def phases_of(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """What a method does in a task, new classes or none."""
    return checked_phases(method, task) if has_own_phases(method, task.num_new) else refresh(method, task)


def train(
    trainer: Trainer,
    method: Method[Any],
    task: Task,
    plan: Plan,
    state: TaskState,
    save: Callable[[], None] | None,
) -> Trained:
    """Train all phases of a task, in place, from where `state` stands; saved on the way where there is a `save`.

    Heads begin with what the features of a pretrained backbone say. A phase that learned nothing is tried again at a
    lower rate, but for the paper's schedules.
    """
    trainer.begin(task)
    if state.phase:
        trainer.listener(state.resumed)
    phases = phases_of(method, task)
    if plan.backbone.is_pretrained:
        phases = with_head_start(phases, trainer.engine.infer)
    restarts: list[str] = []
    if plan.settings.training != "paper":
        phases = with_second_try(phases, trainer.engine.infer, task.num_total, restarts.append)
    accuracies: dict[str, float] = {}
    of_new: dict[str, float] = {}

    def note_accuracy(wanted: Evaluate) -> None:
        if len(plan.held_out):
            accuracies[wanted.variant], new = _accuracy(trainer, wanted, task, plan)
            if new is not None:
                of_new[wanted.variant] = new

    return Trained(trainer.learn(phases, state, note_accuracy, save), accuracies, of_new, tuple(restarts))


def with_head_start(phases: Iterator[Phase | Evaluate], infer: Infer) -> Iterator[Phase | Evaluate]:
    """The same phases; the head of each network is set before its first phase."""
    started: set[nn.Module] = set()
    for phase in phases:
        if isinstance(phase, Phase) and phase.network not in started:
            start_head(phase.network, infer, phase.data)
            started.add(phase.network)
        yield phase


def with_second_try(
    phases: Iterator[Phase | Evaluate], infer: Infer, num_classes: int, tell: Callable[[str], None]
) -> Iterator[Phase | Evaluate]:
    """The same phases; one that ends near chance starts again from where it began, at a tenth of its rate.

    What decides is the trained network alone, so that a `learn` which was interrupted decides in the same way.
    """
    for phase in phases:
        if not isinstance(phase, Phase):
            yield phase
            continue
        began = {name: value.clone() for name, value in phase.network.state_dict().items()}
        yield phase
        if is_near_chance(phase, infer, num_classes):
            phase.network.load_state_dict(began)
            rate = LOWER_RATE * phase.fit.learning_rate
            tell(f"{phase.name}: it learned nothing, and was started again at a rate of {rate:g}")
            yield replace(phase, name=f"{phase.name} again", fit=phase.fit.model_copy(update={"learning_rate": rate}))


def is_near_chance(phase: Phase, infer: Infer, num_classes: int) -> bool:
    """Whether a network tells the images that it was trained on hardly better apart than by guessing."""
    sample = _spread(phase.data)
    if num_classes < 2 or not len(sample):
        return False
    logits = infer(phase.network, sample.stack).logits
    right = float((logits.argmax(1).cpu() == sample.labels.cpu()).double().mean())
    return not right - 1 / num_classes >= LEAST_GAIN * (1 - 1 / num_classes)


def _spread(data: ImageSet) -> ImageSet:
    """Some labelled images from all over the set."""
    labelled = torch.nonzero(data.labels.cpu() >= 0)[:, 0]
    stride = max(1, len(labelled) // NUM_LOOKED_AT)
    return data.select(labelled[::stride][:NUM_LOOKED_AT])


def _accuracy(trainer: Trainer, wanted: Evaluate, task: Task, plan: Plan) -> tuple[float, float | None]:
    """In percent, means over all classes and over the new ones, if any of them has an image; held-out images are seen
    as by a Classifier."""
    held_out = plan.held_out
    logits = trainer.engine.infer(wanted.network, held_out.stack).logits
    rank, labels = ranks(logits, held_out.labels).cpu(), held_out.labels
    sizes = [size for size in (task.num_known, task.num_new) if size]
    evaluation = evaluate(rank.numpy(), labels.numpy(), sizes)
    trainer.listener(events.Evaluated(task.index, wanted.variant, **vars(evaluation)))
    by_class = {label: 100 * float((rank[labels == label] == 0).double().mean()) for label in labels.unique().tolist()}
    new = [accuracy for label, accuracy in by_class.items() if label >= task.num_known]
    return sum(by_class.values()) / len(by_class), sum(new) / len(new) if new else None
