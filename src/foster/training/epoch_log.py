"""Reports each epoch of a phase, and checks that its losses and weights are finite."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_low

import torch
from torch import Tensor

from foster.errors import TrainingError
from foster.events import EpochEnded, Listener
from foster.training.phase import Phase


@dataclass(frozen=True)
class _ClosedEpoch:
    """An epoch whose steps have all been launched; `sums` holds its losses once `copied` has happened."""

    epoch: int
    rate: float
    names: tuple[str, ...]
    sums: Tensor
    copied: torch.cuda.Event | None
    seconds: float
    ended: float
    """When, by the clock."""


@dataclass
class EpochLog:
    """Turns loss sums into events, one epoch late, so that the device never waits for the host to read them.

    `start` is the epoch in which the training began here; `sums_before` are its losses from before that.
    """

    phase: Phase
    num_images: int
    listener: Listener
    task: int
    start: int = 0
    sums_before: Sequence[float] = ()
    _last: float = field(default_factory=lambda: time.monotonic())  # a clock that tests may set
    _durations: list[float] = field(default_factory=list)
    _pending: _ClosedEpoch | None = None

    def close(self, epoch: int, rate: float, names: tuple[str, ...], sums: Tensor) -> None:
        """Take the loss sums of a finished epoch, which start again from 0, and report the epoch before it."""
        now = time.monotonic()
        taken, copied = _to_host(sums)
        sums.zero_()
        previous, self._pending = self._pending, _ClosedEpoch(epoch, rate, names, taken, copied, now - self._last, now)
        self._last = now
        self._report(previous)

    def flush(self) -> None:
        """Report the last epoch that was closed."""
        pending, self._pending = self._pending, None
        self._report(pending)

    def sums_so_far(self, epoch: int, names: Sequence[str], sums: Tensor) -> tuple[float, ...]:
        """The loss sums of an epoch that is under way, those from before a resume included."""
        whole = self._with_those_before(epoch, sums.tolist())
        self._check(self._losses(names, whole), epoch)
        return whole

    def check_weights(self, epoch: int) -> None:
        """Refuse weights that are not finite before they are saved: a step after a finite loss may have broken them."""
        tensors = [tensor for tensor in self.phase.network.state_dict().values() if tensor.is_floating_point()]
        if not bool(torch.stack([tensor.sum(dtype=torch.float64) for tensor in tensors]).sum().isfinite()):
            raise TrainingError(f"the weights are not finite numbers {self._where(epoch)}")

    def _with_those_before(self, epoch: int, sums: list[float]) -> tuple[float, ...]:
        if epoch != self.start or not self.sums_before:
            return tuple(sums)
        return tuple(before + after for before, after in zip(self.sums_before, sums, strict=True))

    def _report(self, closed: _ClosedEpoch | None) -> None:
        if closed is None:
            return
        if closed.copied is not None:
            closed.copied.synchronize()
        losses = self._losses(closed.names, self._with_those_before(closed.epoch, closed.sums.tolist()))
        self._check(losses, closed.epoch)
        epochs = self.phase.fit.epochs
        self._durations.append(closed.seconds)
        per_epoch = median_low(self._durations)  # a first epoch that was slow says little of the others
        # This is reported when the next epoch is over: part of the time that was left has passed.
        left = max(0.0, per_epoch * (epochs - closed.epoch - 1) - (time.monotonic() - closed.ended))
        name = self.phase.name
        self.listener(EpochEnded(self.task, name, closed.epoch, epochs, losses, closed.rate, closed.seconds, left))

    def _losses(self, names: Sequence[str], sums: Sequence[float]) -> dict[str, float]:
        losses = {name: value / self.num_images for name, value in zip(names, sums, strict=True)}
        losses["total"] = sum(losses.values())
        return losses

    def _check(self, losses: dict[str, float], epoch: int) -> None:
        if not math.isfinite(losses["total"]):
            terms = ", ".join(f"{name} {value:g}" for name, value in losses.items())
            raise TrainingError(f"the loss is not a finite number ({terms}) {self._where(epoch)}")

    def _where(self, epoch: int) -> str:
        return (
            f"in task {self.task + 1}, phase {self.phase.name}, epoch {epoch + 1}; "
            f"try a learning rate below {self.phase.fit.learning_rate:g}"
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
