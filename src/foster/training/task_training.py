"""The phases of one task, trained one after the other, so that the work can stop anywhere and go on from there."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from foster import events
from foster.data.augmentation.pipeline import Augmentation
from foster.data.feed import Feed, make_feed
from foster.seeding import Address
from foster.system.signals import StopRequest
from foster.training.checkpoint import Checkpoint, Progress
from foster.training.engine import Engine
from foster.training.fit import FitState, Position, fit, restore_trained
from foster.training.phase import Phase
from foster.training.views import ViewFeed

Parts = dict[str, Mapping[str, Tensor]]

Save = Callable[[Mapping[str, Any], Parts, Parts], None]
"""(where the task stands, tensors that stay, tensors that change) -> a checkpoint on the disk."""


@dataclass
class TaskProgress:
    """How far a task has come. `kept` are the parts of a checkpoint that stay as they are until the task ends."""

    kept: Parts = field(default_factory=dict)
    num_phases_done: int = 0
    fit: FitState | None = None
    seconds: float = 0.0
    phase: str = ""
    """The phase that was trained last; empty where none was."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "TaskProgress":
        found, parts = Progress.of(checkpoint), checkpoint.parts
        kept: Parts = {name: tensors for name, tensors in parts.items() if name not in ("fit", "momentum")}
        fit_state = None
        if found.position:
            position = Position(found.position.epoch, found.position.step, found.position.loss_sums)
            fit_state = FitState(parts["fit"], parts.get("momentum", {}), position)
        return cls(kept, found.num_phases_done, fit_state, found.seconds, found.phase)

    @property
    def epoch(self) -> int:
        return self.fit.position.epoch if self.fit else 0


@dataclass(frozen=True)
class Trainer:
    """How phases are trained: where, with which images changed how, who looks on, and how often all is saved."""

    engine: Engine
    augmentation: Augmentation
    batch_size: int
    seed: int
    listener: events.Listener
    stop: StopRequest
    checkpoint_minutes: float


class TaskTraining:
    """Trains the phases of a task, from where `progress` says, and saves: from time to time, when a stop is asked
    for, and at each phase's end. Without `save`, a stop ends the work and nothing is kept."""

    def __init__(self, trainer: Trainer, task: int, num_tasks: int, progress: TaskProgress, save: Save | None) -> None:
        self._trainer = trainer
        self._task = task
        self._num_tasks = num_tasks
        self._progress = progress
        self._save = save
        self._num_phases = 0
        self._began = time.monotonic() - progress.seconds
        self._last_saved = 0.0

    @property
    def seconds(self) -> float:
        """How long the task has taken, in all attempts."""
        return time.monotonic() - self._began

    def train(self, phase: Phase) -> None:
        """Train the task's next phase; one that was done before the task was resumed only gets its weights back."""
        progress, name = self._progress, f"phase-{self._num_phases}"
        self._num_phases += 1
        if self._num_phases <= progress.num_phases_done:
            restore_trained(phase.network, progress.kept[name])
            return
        progress.phase, self._last_saved = phase.name, time.monotonic()
        self._fit(phase)
        progress.num_phases_done, progress.fit = self._num_phases, None
        if self._save is not None:
            # What follows in the task starts from these weights.
            progress.kept[name] = copied(phase.network.state_dict())
            self._save(self._where(), progress.kept, {})
        self._trainer.stop.raise_if_set()

    def is_due(self, is_epoch_end: bool) -> bool:
        if self._trainer.stop.is_set:
            return True
        interval = 60 * self._trainer.checkpoint_minutes
        is_late = self._save is not None and time.monotonic() - self._last_saved >= interval
        return is_late and (is_epoch_end or interval > 0)

    def keep(self, state: FitState) -> None:
        if self._save is not None:
            changing: Parts = {"fit": state.network, "momentum": state.momentum}
            self._save(self._where() | {"position": vars(state.position)}, self._progress.kept, changing)
            self._last_saved = time.monotonic()
        self._trainer.stop.raise_if_set()

    def _fit(self, phase: Phase) -> None:
        how, engine, task = self._trainer, self._trainer.engine, self._task
        address = Address(how.seed, "feed", task, phase.name)
        feed: Feed
        if engine.views is not None:
            feed = ViewFeed(phase.data, engine.views, how.batch_size, address, engine.device)
        else:
            feed = make_feed(phase.data, how.augmentation, how.batch_size, address, engine.device, engine.resident)
        how.listener(events.PhaseStarted(task, self._num_tasks, phase.name, phase.fit.epochs, feed.num_steps))
        began = time.monotonic()
        fit(phase, feed, engine, how.listener, task=task, start=self._progress.fit, watch=self)
        how.listener(events.PhaseEnded(task, phase.name, time.monotonic() - began))

    def _where(self) -> dict[str, Any]:
        progress = self._progress
        return {
            "task": self._task,
            "phase": progress.phase,
            "num_phases_done": progress.num_phases_done,
            "seconds": self.seconds,
        }


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, untouched by what later happens to the network."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
