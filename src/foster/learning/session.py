"""The training inside one `learn`: a method's phases, one after the other, on the shared loop."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from foster import events
from foster.data.augmentation import Augmentation
from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import ranks
from foster.methods.base import Evaluate, Method
from foster.methods.foster import Foster
from foster.methods.refresh import refresh
from foster.seeding import Address
from foster.stopping import StopRequest
from foster.training.engine import Engine
from foster.training.fit import FitState, fit
from foster.training.memory_errors import explained_memory_errors
from foster.training.phase import Phase


def has_own_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the method's own story is told: always with new classes, and for FOSTER, which boosts also without."""
    return num_new > 0 or isinstance(method, Foster)


class SessionResult(NamedTuple):
    """The epochs of every phase, and the accuracy of every network evaluated on the way (a mean over classes)."""

    epochs: dict[str, int]
    accuracies: dict[str, float]


class _StopWatch:
    """Ends the training at the next step when somebody asked for it."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def is_due(self, is_epoch_end: bool) -> bool:
        return self._stop.is_set

    def keep(self, state: FitState) -> None:
        self._stop.raise_if_set()


@dataclass(frozen=True)
class TrainingSession:
    """How phases are trained: where, with which images changed how, and who looks on."""

    engine: Engine
    augmentation: Augmentation
    batch_size: int
    seed: int
    listener: events.Listener
    stop: StopRequest

    def run(self, method: Method[Any], task: Task, held_out: ImageSet) -> SessionResult:
        """Train all phases of a task, in place."""
        self.listener(events.TaskStarted(task.index, task.index + 1, task.num_known, task.num_new, len(task.training)))
        result = SessionResult({}, {})
        has_own = has_own_phases(method, task.num_new)
        for step in method.phases(task) if has_own else refresh(method, task):
            if isinstance(step, Phase):
                self._fit(step, task)
                result.epochs[step.name] = step.fit.epochs
            elif len(held_out):
                result.accuracies[step.variant] = self._evaluate(step, task, held_out)
        return result

    def _evaluate(self, wanted: Evaluate, task: Task, held_out: ImageSet) -> float:
        logits = self.engine.infer(wanted.network, held_out.images).logits
        rank, labels = ranks(logits, held_out.labels).cpu(), held_out.labels
        sizes = [size for size in (task.num_known, task.num_new) if size]
        found = evaluate(rank.numpy(), labels.numpy(), sizes)
        self.listener(events.Evaluated(task.index, wanted.variant, **vars(found)))
        by_class = [float((rank[labels == label] == 0).double().mean()) for label in labels.unique().tolist()]
        return 100 * sum(by_class) / len(by_class)

    def _fit(self, phase: Phase, task: Task) -> None:
        address = Address(self.seed, "feed", task.index, phase.name)
        feed = ResidentFeed(phase.data, self.augmentation, self.batch_size, address, self.engine.device)
        self.listener(events.PhaseStarted(task.index, task.index + 1, phase.name, phase.fit.epochs, feed.num_steps))
        began = time.monotonic()
        with explained_memory_errors(self.engine.device, self.batch_size):
            fit(phase, feed, self.engine, self.listener, task=task.index, watch=_StopWatch(self.stop))
        self.listener(events.PhaseEnded(task.index, phase.name, time.monotonic() - began))
