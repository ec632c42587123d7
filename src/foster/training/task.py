"""Trains the phases of one task in order, for `run` and `learn`. Training can stop after any step and resume there."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from foster import events
from foster.data.feed import Feed, make_feed
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.networks.modules import on_host
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.system.documents import Count, Document, Seconds
from foster.system.processes import agreed, process_group, stop_together
from foster.system.signals import Stopped, StopRequest
from foster.training.checkpoint import Checkpoint, CheckpointStore, Tensors, explained_misfit
from foster.training.distributed import agree_on_statistics
from foster.training.engine import Engine
from foster.training.fit import FitState, fit, restore_trained
from foster.training.phase import Evaluate, Phase, takes_batch

STEPS_BETWEEN_AGREEMENTS = 50
"""After this many steps, several processes agree whether to save or to stop. They average their BatchNorm statistics at
the same steps, saved or not, so that a resumed run has the same rounding as an uninterrupted one."""

CHANGING = ("fit", "optimizer", "teachers")
"""The parts of a checkpoint that change with every step."""

MEASURED_EPOCHS = 4
"""The number of short epochs in a measurement of a phase's speed. The first and the last are not timed."""


class _Position(Document):
    epoch: Count
    step: Count
    loss_sums: tuple[float, ...]


class _Progress(Document):
    """The fields of a task in a checkpoint's state, beside those of the run or learner."""

    task: Count
    phase: str
    num_phases_done: Count
    seconds: Seconds
    position: _Position | None = None


@dataclass
class TaskState:
    """The progress of a task, as it is saved in a checkpoint."""

    task: int
    kept: dict[str, Tensors] = field(default_factory=dict)
    """Tensors that do not change until the task ends: the method before the task, and the network after each phase."""
    phase: str = ""
    """The phase that was trained last; empty if there is none."""
    num_phases_done: int = 0
    fit: FitState | None = None
    """The last saved state of the current phase."""
    seconds_before: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "TaskState":
        """The state in a checkpoint. Raises ValueError if a field is wrong or a part is missing."""
        progress, parts = _Progress.model_validate(checkpoint.state), checkpoint.parts
        needed = {f"phase-{k}" for k in range(min(progress.num_phases_done, 1000))}
        needed |= {"fit"} if progress.position else set()
        if missing := needed - parts.keys():
            raise ValueError(f"the part '{min(missing)}' is missing")
        kept: dict[str, Tensors] = {name: part for name, part in parts.items() if name not in CHANGING}
        fit_state = None
        if at := progress.position:
            tensors = [parts.get(name, {}) for name in CHANGING]
            fit_state = FitState(tensors[0], tensors[1], at.epoch, at.step, at.loss_sums, tensors[2])
        return cls(progress.task, kept, progress.phase, progress.num_phases_done, fit_state, progress.seconds)

    @property
    def epoch(self) -> int:
        return self.fit.epoch if self.fit else 0

    @property
    def resumed(self) -> events.RunResumed:
        """The event that says where the task is resumed."""
        return events.RunResumed(self.task, self.phase, self.epoch, bool(self.phase) and self.fit is None)

    @property
    def seconds(self) -> float:
        """The duration of the task, over all interrupted attempts."""
        return self.seconds_before + time.monotonic() - self._began

    def save(self, store: CheckpointStore, facts: Mapping[str, Any], listener: events.Listener) -> None:
        """Write a checkpoint with this state and with the `facts` that identify the run or learner."""
        began = time.monotonic()
        progress: dict[str, Any] = {"task": self.task, "phase": self.phase, "num_phases_done": self.num_phases_done}
        changing: dict[str, Tensors] = {}
        if self.fit is not None:
            progress["position"] = {"epoch": self.fit.epoch, "step": self.fit.step, "loss_sums": self.fit.loss_sums}
            tensors = (self.fit.network, self.fit.optimizer, self.fit.teachers)
            changing = {name: part for name, part in zip(CHANGING, tensors, strict=True) if part}
        store.save({**facts, **progress, "seconds": self.seconds}, self.kept, changing)
        listener(events.CheckpointWritten(self.task, self.phase, self.epoch, time.monotonic() - began))


@dataclass(frozen=True)
class Trainer:
    """Trains tasks: the engine, the augmentation, the listener, and how often checkpoints are written."""

    engine: Engine
    augmentation: Augmentation
    batch_size: int
    seed: int
    listener: events.Listener
    stop: StopRequest
    checkpoint_minutes: float
    num_tasks: int
    smallest_batch: int = 2
    """A last batch of fewer images is left out of its epoch."""

    def begin(self, task: Task) -> None:
        num_images = len(task.training)
        self.listener(events.TaskStarted(task.index, self.num_tasks, task.num_known, task.num_new, num_images))

    def learn(
        self,
        phases: Iterable[Phase | Evaluate],
        state: TaskState,
        evaluate: Callable[[Evaluate], None],
        save: Callable[[], None] | None = None,
    ) -> dict[str, int]:
        """Train a method's `phases`, starting from `state`, which is updated. Returns the epochs of every phase.

        A phase that is already done gets its saved weights. `save` is called every `checkpoint_minutes`, when a stop is
        requested, and at the end of each phase; without `save`, nothing is kept after a stop.
        """
        epochs: dict[str, int] = {}
        num_phases = 0
        for phase in phases:
            if isinstance(phase, Evaluate):
                evaluate(phase)
                continue
            name = f"phase-{num_phases}"
            num_phases += 1
            epochs[phase.name] = phase.fit.epochs
            if num_phases <= state.num_phases_done:
                restore_trained(phase.network, state.kept[name])
                with explained_misfit():
                    phase.restore_teachers(state.kept.get(f"{name}-teachers", {}))
                continue
            teachers = self.train(phase, state, save)
            state.num_phases_done, state.fit = num_phases, None
            if save is not None:
                # The rest of the task starts from these weights.
                state.kept[name] = {key: on_host(tensor) for key, tensor in phase.network.state_dict().items()}
                if teachers:
                    state.kept[f"{name}-teachers"] = teachers
                save()
            self.stop_if_requested()
        return epochs

    def stop_if_requested(self) -> None:
        """Raise Stopped if a stop was requested in this process or in another one of its group."""
        stop_together(self.stop)

    def train(self, phase: Phase, state: TaskState, save: Callable[[], None] | None) -> Tensors:
        """Train one phase, from `state.fit` if it was interrupted. Returns the changed tensors of its teachers."""
        teachers = {name: on_host(tensor) for name, tensor in phase.teacher_tensors().items()}
        state.phase, saved = phase.name, time.monotonic()
        engine, feed = self.engine, self._feed(phase, state.task)
        self.listener(events.PhaseStarted(state.task, self.num_tasks, phase.name, phase.fit.epochs, feed.num_steps))
        began, interval = time.monotonic(), 60 * self.checkpoint_minutes
        with closing(fit(phase, feed, engine, self.listener, task=state.task, start=state.fit)) as points:
            for point in points:
                if (
                    not process_group().is_alone
                    and not point.is_epoch_end
                    and point.num_steps % STEPS_BETWEEN_AGREEMENTS
                ):
                    continue
                agree_on_statistics(phase.network)
                # 0 minutes: save after every epoch.
                is_late = time.monotonic() - saved >= interval and (point.is_epoch_end or interval > 0)
                if not agreed(self.stop.is_set or (save is not None and is_late)):
                    continue
                state.fit = replace(point.state(), teachers=phase.changed_teachers(teachers))
                if save is not None:
                    save()
                    saved = time.monotonic()
                self.stop_if_requested()
        self.listener(events.PhaseEnded(state.task, phase.name, time.monotonic() - began))
        return phase.changed_teachers(teachers)

    def _feed(self, phase: Phase, task: int) -> Feed:
        return make_feed(
            phase.data,
            self.augmentation,
            self.batch_size,
            Address(self.seed, "feed", task, phase.name),
            self.engine.device,
            self.engine.resident,
            phase.num_views,
            takes_batch(phase.objective),
            phase.replay,
            self.smallest_batch,
        )


def seconds_an_epoch(
    phase: Phase,
    data: ImageSet,
    task: int,
    engine: Engine,
    augmentation: Augmentation,
    batch_size: int,
) -> float:
    """The measured time of an epoch of `data` in this phase.

    The first epoch is not timed: it allocates memory and selects kernels. The last one ends after a step. The
    measurement trains the network, which must not be used afterwards.
    """
    began: list[float] = []
    stop = StopRequest()

    def on_epoch(epoch: int) -> None:
        if engine.device.type == "cuda":
            torch.cuda.synchronize(engine.device)
        began.append(time.monotonic())
        if len(began) == MEASURED_EPOCHS:
            stop.set()
        if phase.on_epoch is not None:
            phase.on_epoch(epoch)

    schedule = FitSettings(epochs=MEASURED_EPOCHS, learning_rate=1e-6)
    trainer = Trainer(engine, augmentation, batch_size, 0, events.ignore, stop, 0.0, task + 1)
    with suppress(Stopped):
        trainer.train(replace(phase, data=data, fit=schedule, on_epoch=on_epoch), TaskState(task), None)
    return (began[-1] - began[1]) / (len(began) - 2)
