"""fit: the training loop of all methods. One iteration is a `step.Step`, which has the only backward pass."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low
from typing import NamedTuple

import torch
from torch import Tensor, nn

from foster.data.feed import Feed
from foster.errors import TrainingError
from foster.events import EpochEnded, Listener
from foster.networks.modules import channels_last, training_mode
from foster.seeding import random_layers
from foster.training.checkpoint import explained_misfit
from foster.training.distributed import agree_on_statistics
from foster.training.engine import Engine
from foster.training.optim import Optimizer, learning_rate
from foster.training.phase import Phase
from foster.training.step import ready_step


@dataclass(frozen=True)
class FitState:
    """Everything that changes while a phase is trained.

    `epoch` and `step` are the position of the next step. `loss_sums` are the sums of that epoch so far. `teachers` has
    the tensors of the phase's teachers that have changed.
    """

    network: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    epoch: int
    step: int = 0
    loss_sums: tuple[float, ...] = ()
    teachers: Mapping[str, Tensor] = field(default_factory=dict)


class SavePoint(NamedTuple):
    """A point at which training can be saved or stopped: after `num_steps` steps of an epoch."""

    num_steps: int
    is_epoch_end: bool
    state: Callable[[], FitState]
    """Returns the state, after checking that losses and weights are finite. Its tensors are not copies."""


def fit(
    phase: Phase, feed: Feed, engine: Engine, listener: Listener, *, task: int, start: FitState | None = None
) -> Generator[SavePoint, None, None]:
    """Train `phase.network` in place to the end of the phase, from the state `start` if it is given.

    Yields after each step but the last; the caller may save the state there, or stop.
    """
    network = channels_last(phase.network)
    training_mode(network)
    optimizer = Optimizer(network, phase.fit, engine.device)
    if start is not None:
        _restore(start, phase, optimizer)
    first_epoch, first_step, sums = (start.epoch, start.step, start.loss_sums) if start else (0, 0, ())
    with random_layers(engine.device) as seed_layers, ready_step(phase, feed, engine, optimizer) as step:
        log = EpochLog(phase, feed.num_images, listener, task, first_epoch, sums)

        def state(epoch: int, num_done: int) -> FitState:
            log.flush()
            is_over = num_done == feed.num_steps
            sums = () if is_over else log.sums_so_far(epoch, step.term_names, step.loss_sums)
            log.check_weights(epoch)
            position = (epoch + 1, 0) if is_over else (epoch, num_done)
            return FitState(network.state_dict(), optimizer.tensors(), *position, sums)

        for epoch in range(first_epoch, phase.fit.epochs):
            rate = learning_rate(phase.fit, epoch)
            optimizer.set_rate(rate)
            if phase.on_epoch is not None:
                if start is not None and first_step:
                    _call_again(phase, epoch, start, optimizer)
                else:
                    phase.on_epoch(epoch)
            seed = replace(feed.address(epoch), purpose="layers").number()
            for index, batch in enumerate(feed.batches(epoch, first_step), start=first_step + 1):
                # Seeded before every step, so that a phase can be resumed in the middle of an epoch.
                seed_layers(seed + index)
                step(batch)
                if index < feed.num_steps:
                    yield SavePoint(index, is_epoch_end=False, state=partial(state, epoch, index))
            first_step = 0
            log.close(epoch, rate, step.term_names, step.loss_sums)
            if epoch + 1 < phase.fit.epochs:
                yield SavePoint(feed.num_steps, is_epoch_end=True, state=partial(state, epoch, feed.num_steps))
        agree_on_statistics(network)
        log.flush()
        log.check_weights(phase.fit.epochs - 1)
    training_mode(network)


def restore_trained(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load `weights` into `network` such that it equals, memory layout included, the network that `fit` trained."""
    with explained_misfit():
        channels_last(network).load_state_dict(weights)
    training_mode(network)


def _call_again(phase: Phase, epoch: int, start: FitState, optimizer: Optimizer) -> None:
    """Call `on_epoch` in the middle of an epoch, and undo its changes of the network and the teachers: the saved state
    already has them."""
    assert phase.on_epoch is not None
    teachers = {name: tensor.detach().clone() for name, tensor in phase.teacher_tensors().items()}
    phase.on_epoch(epoch)
    _restore(replace(start, teachers=teachers), phase, optimizer)


def _restore(start: FitState, phase: Phase, optimizer: Optimizer) -> None:
    with explained_misfit():
        phase.network.load_state_dict(start.network)
        optimizer.restore(start.optimizer)
        phase.restore_teachers(start.teachers)


@dataclass
class EpochLog:
    """Reports the losses of each epoch one epoch later, so that the device never waits for the host to read them.

    `start` is the epoch at which this process began, and `sums_before` are the loss sums of that epoch from before a
    resume.
    """

    phase: Phase
    num_images: int
    listener: Listener
    task: int
    start: int = 0
    sums_before: Sequence[float] = ()
    _last: float = field(default_factory=lambda: time.monotonic())  # tests may replace the clock
    _durations: list[float] = field(default_factory=list)
    _pending: Callable[[], None] = lambda: None
    """Reports the last closed epoch."""

    def close(self, epoch: int, rate: float, names: tuple[str, ...], sums: Tensor) -> None:
        """Take the loss sums of a finished epoch, reset them to 0, and report the previous epoch."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        read = _read_later(sums)
        sums.zero_()
        self.flush()

        def report() -> None:
            losses = self._losses(epoch, names, self._with_sums_before(epoch, read()))
            self._durations.append(seconds)
            per_epoch = median_low(self._durations)  # the first epoch is often slower
            # The epoch is reported one epoch later, so part of the remaining time has passed.
            epochs, passed = self.phase.fit.epochs, time.monotonic() - now
            left = max(0.0, per_epoch * (epochs - epoch - 1) - passed)
            self.listener(EpochEnded(self.task, self.phase.name, epoch, epochs, losses, rate, seconds, left))

        self._pending = report

    def flush(self) -> None:
        """Report the last closed epoch, if it is not reported yet."""
        report, self._pending = self._pending, lambda: None
        report()

    def sums_so_far(self, epoch: int, names: Sequence[str], sums: Tensor) -> tuple[float, ...]:
        """The loss sums of the current epoch, including those from before a resume."""
        whole = self._with_sums_before(epoch, sums.tolist())
        self._losses(epoch, names, whole)
        return whole

    def check_weights(self, epoch: int) -> None:
        """Raise TrainingError if a weight is not finite. The losses do not show it: they are computed
        before the last step."""
        tensors = [tensor for tensor in self.phase.network.state_dict().values() if tensor.is_floating_point()]
        if not bool(torch.stack([tensor.sum(dtype=torch.float64) for tensor in tensors]).sum().isfinite()):
            raise TrainingError(f"the weights are not finite numbers {self._where(epoch)}")

    def _with_sums_before(self, epoch: int, sums: list[float]) -> tuple[float, ...]:
        if epoch != self.start or not self.sums_before:
            return tuple(sums)
        return tuple(before + after for before, after in zip(self.sums_before, sums, strict=True))

    def _losses(self, epoch: int, names: Sequence[str], sums: Sequence[float]) -> dict[str, float]:
        """The means of all loss terms and their sum, `total`. Raises TrainingError if that is not finite."""
        losses = {name: value / self.num_images for name, value in zip(names, sums, strict=True)}
        losses["total"] = sum(losses.values())
        if not math.isfinite(losses["total"]):
            terms = ", ".join(f"{name} {value:g}" for name, value in losses.items())
            raise TrainingError(f"the loss is not a finite number ({terms}) {self._where(epoch)}")
        return losses

    def _where(self, epoch: int) -> str:
        return (
            f"in task {self.task + 1}, phase {self.phase.name}, epoch {epoch + 1}; "
            f"try a learning rate below {self.phase.fit.learning_rate:g}"
        )


def _read_later(sums: Tensor) -> Callable[[], list[float]]:
    """Copy `sums` to the host asynchronously. The returned function waits for the copy and returns its values."""
    if not sums.is_cuda:
        return sums.clone().tolist
    host = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
    host.copy_(sums, non_blocking=True)
    copied = torch.cuda.Event(blocking=True)  # the host sleeps instead of polling
    copied.record()

    def read() -> list[float]:
        copied.synchronize()
        values: list[float] = host.tolist()
        return values

    return read
