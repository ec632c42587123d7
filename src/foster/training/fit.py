"""fit: the only training loop, and the only backward pass, for every method."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from foster.data.feed import Feed
from foster.errors import TrainingError
from foster.events import EpochEnded, Listener
from foster.kernels import drop_kernels, use_kernels
from foster.networks.freezing import training_mode
from foster.networks.layout import channels_last
from foster.seeding import random_layers
from foster.training.accelerate import compiled_backbones
from foster.training.checkpoint import explained_misfit
from foster.training.engine import Engine
from foster.training.optim import Sgd, learning_rate
from foster.training.phase import Phase
from foster.training.step import CapturedStep, EagerStep


@dataclass(frozen=True)
class Position:
    """Where in a phase the training stands: the next step to be done, and the losses summed so far in its epoch."""

    epoch: int = 0
    step: int = 0
    loss_sums: tuple[float, ...] = ()


@dataclass(frozen=True)
class FitState:
    """All that changes while a phase is trained."""

    network: dict[str, Tensor]
    momentum: dict[str, Tensor]
    position: Position


class Watch(Protocol):
    """Looks on while a phase is trained, and may ask for its state after any step."""

    def is_due(self, is_epoch_end: bool) -> bool:
        """Whether the state is wanted now. Called after every step: it must be cheap."""

    def keep(self, state: FitState) -> None:
        """Takes the state; may raise to stop the training."""


def fit(
    phase: Phase,
    feed: Feed,
    engine: Engine,
    listener: Listener,
    *,
    task: int,
    start: FitState | None = None,
    watch: Watch | None = None,
) -> None:
    """Train `phase.network` in place until the phase's last epoch, from `start` where one is given."""
    network = channels_last(phase.network)
    training_mode(network)
    optimizer = Sgd(network, phase.fit, engine.device)
    position = _restore(start, phase, optimizer) if start else Position()
    with random_layers(engine.device) as seed_layers, ready_step(phase, feed, engine, optimizer) as step:
        log = _EpochLog(phase, feed.num_images, listener, task, position)
        for epoch in range(position.epoch, phase.fit.epochs):
            rate = learning_rate(phase.fit, epoch)
            optimizer.set_rate(rate)
            if phase.on_epoch is not None:
                phase.on_epoch(epoch)
            chance = replace(feed.address(epoch), purpose="layers").number()
            first_step = position.step if epoch == position.epoch else 0
            for index, batch in enumerate(feed.batches(epoch, first_step), start=first_step + 1):
                # In every step, so that a phase that goes on in the middle of an epoch needs no state of it.
                seed_layers(chance + index)
                step(batch.images, batch.labels)
                is_epoch_end = index == feed.num_steps
                if not is_epoch_end and watch is not None and watch.is_due(is_epoch_end=False):
                    log.flush()
                    sums = log.sums_so_far(epoch, step)
                    log.check_weights(epoch)
                    watch.keep(_state(phase, optimizer, Position(epoch, index, sums)))
            log.close(epoch, rate, step)
            is_last = epoch + 1 == phase.fit.epochs
            if not is_last and watch is not None and watch.is_due(is_epoch_end=True):
                log.flush()
                log.check_weights(epoch)
                watch.keep(_state(phase, optimizer, Position(epoch + 1)))
        log.flush()
        log.check_weights(phase.fit.epochs - 1)
    training_mode(network)


def restore_trained(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Leave `network` exactly as `fit` left it when it ended with these weights, memory layout included."""
    with explained_misfit():
        channels_last(network).load_state_dict(weights)
    training_mode(network)


@contextmanager
def ready_step(phase: Phase, feed: Feed, engine: Engine, optimizer: Sgd) -> Iterator[EagerStep | CapturedStep]:
    """The step of a phase, compiled and recorded as the engine wants it; ready to be called with batches of `feed`."""
    modules = (phase.network, *phase.teachers)
    # In float32 no kernel would run, and blocks that wait for one are not compiled.
    choose = use_kernels if engine.kernels and engine.dtype is torch.bfloat16 else drop_kernels
    for module in modules:
        choose(module)
    with compiled_backbones(modules, engine.compile) as switch:
        # Only full batches run compiled: left-over sizes, and phases of less than a batch, differ from task to task.
        eager = EagerStep(
            phase.network, phase.objective, optimizer, engine, lambda batch_size: switch(batch_size == feed.batch_size)
        )
        if not engine.capture:
            yield eager
            return
        # What the recordings of the phase before have left: nobody else can use it, in this process or another.
        torch.cuda.empty_cache()
        captured = CapturedStep(eager, feed.sample)
        captured.record(sorted({min(feed.batch_size, feed.num_images), feed.last_size}, reverse=True))
        yield captured


@dataclass(frozen=True)
class _ClosedEpoch:
    """An epoch whose steps have all been launched; `sums` holds its losses once `copied` has happened."""

    epoch: int
    rate: float
    names: tuple[str, ...]
    sums: Tensor
    copied: torch.cuda.Event | None
    seconds: float


class _EpochLog:
    """Turns loss sums into events, one epoch late, so that the device never waits for the host to read them."""

    def __init__(self, phase: Phase, num_images: int, listener: Listener, task: int, start: Position) -> None:
        self._phase = phase
        self._num_images = num_images
        self._listener = listener
        self._task = task
        self._start = start
        self._began = self._last = time.monotonic()
        self._pending: _ClosedEpoch | None = None

    def close(self, epoch: int, rate: float, step: EagerStep | CapturedStep) -> None:
        """Take the sums of a finished epoch, and report the one before it."""
        now = time.monotonic()
        sums, copied = _to_host(step.loss_sums)
        step.loss_sums.zero_()
        previous, self._pending = (
            self._pending,
            _ClosedEpoch(epoch, rate, step.term_names, sums, copied, now - self._last),
        )
        self._last = now
        self._report(previous)

    def sums_so_far(self, epoch: int, step: EagerStep | CapturedStep) -> tuple[float, ...]:
        """The loss sums of an epoch that is under way, those from before a resume included."""
        sums = self._with_start(epoch, step.loss_sums.tolist())
        self._check(self._losses(step.term_names, sums), epoch)
        return sums

    def check_weights(self, epoch: int) -> None:
        """Weights that are not numbers are never saved: a finite loss says nothing of the step that follows it."""
        tensors = [tensor for tensor in self._phase.network.state_dict().values() if tensor.is_floating_point()]
        if not bool(torch.stack([tensor.sum(dtype=torch.float64) for tensor in tensors]).sum().isfinite()):
            raise TrainingError(f"the weights are not finite numbers {self._where(epoch)}")

    def _with_start(self, epoch: int, sums: list[float]) -> tuple[float, ...]:
        if epoch != self._start.epoch or not self._start.loss_sums:
            return tuple(sums)
        return tuple(before + after for before, after in zip(self._start.loss_sums, sums, strict=True))

    def flush(self) -> None:
        pending, self._pending = self._pending, None
        self._report(pending)

    def _report(self, closed: _ClosedEpoch | None) -> None:
        if closed is None:
            return
        if closed.copied is not None:
            closed.copied.synchronize()
        sums = self._with_start(closed.epoch, closed.sums.tolist())
        losses = self._losses(closed.names, sums)
        self._check(losses, closed.epoch)
        epochs = self._phase.fit.epochs
        per_epoch = (time.monotonic() - self._began) / (closed.epoch + 1 - self._start.epoch)
        left = per_epoch * (epochs - closed.epoch - 1)
        name = self._phase.name
        self._listener(EpochEnded(self._task, name, closed.epoch, epochs, losses, closed.rate, closed.seconds, left))

    def _losses(self, names: Sequence[str], sums: Sequence[float]) -> dict[str, float]:
        losses = {name: value / self._num_images for name, value in zip(names, sums, strict=True)}
        losses["total"] = sum(losses.values())
        return losses

    def _check(self, losses: dict[str, float], epoch: int) -> None:
        if not math.isfinite(losses["total"]):
            terms = ", ".join(f"{name} {value:g}" for name, value in losses.items())
            raise TrainingError(f"the loss is not a finite number ({terms}) {self._where(epoch)}")

    def _where(self, epoch: int) -> str:
        return (
            f"in task {self._task + 1}, phase {self._phase.name}, epoch {epoch + 1}; "
            f"try a learning rate below {self._phase.fit.learning_rate:g}"
        )


def _to_host(sums: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy of `sums` that arrives on the host without making it wait, and the event after which it is there."""
    if not sums.is_cuda:
        return sums.clone(), None
    host = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
    host.copy_(sums, non_blocking=True)
    copied = torch.cuda.Event(blocking=True)  # the host sleeps until then: most of an epoch
    copied.record()
    return host, copied


def _state(phase: Phase, optimizer: Sgd, position: Position) -> FitState:
    momentum = {
        name: optimizer.momentum[parameter]
        for name, parameter in phase.network.named_parameters()
        if parameter in optimizer.momentum
    }
    return FitState(phase.network.state_dict(), momentum, position)


def _restore(start: FitState, phase: Phase, optimizer: Sgd) -> Position:
    with explained_misfit():
        phase.network.load_state_dict(start.network)
        parameters = dict(phase.network.named_parameters())
        for name, momentum in start.momentum.items():
            optimizer.momentum[parameters[name]].copy_(momentum)
    return start.position
