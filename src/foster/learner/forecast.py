"""How long a `learn` will take and how much memory: a rehearsal of its phases, with a few steps of each."""

import copy
import time
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

import torch

from foster import events
from foster.data.memory import BorrowedMemory
from foster.data.task import Task
from foster.evaluation.predict import Nothing
from foster.learner.plan import Plan
from foster.learner.training import phases_of
from foster.methods.base import Method
from foster.training.engine import Engine
from foster.training.phase import Phase
from foster.training.task import seconds_an_epoch

BYTES_OF_STATE = 16
"""float32 weight, gradient and momentum, and one copy of the weight."""

BYTES_OF_PROCESS = 400 * 2**20
"""What Python and torch take before anything is read."""


@dataclass(frozen=True)
class TimedPhase:
    name: str
    epochs: int
    seconds_an_epoch: float

    @property
    def seconds(self) -> float:
        return self.epochs * self.seconds_an_epoch


@dataclass(frozen=True)
class Forecast:
    """Seconds before the first phase (what a trunk makes of the photos), those of every phase, memory in bytes, and
    seconds after each phase, in which it is measured."""

    seconds_before: float
    phases: tuple[TimedPhase, ...]
    num_bytes: int
    seconds_after: float = 0.0

    @property
    def seconds(self) -> float:
        return self.seconds_beside + sum(phase.seconds for phase in self.phases)

    @property
    def seconds_beside(self) -> float:
        """All that is no training, and takes as long whatever the schedules are."""
        return self.seconds_before + self.seconds_after * len(self.phases)


def forecast(plan: Plan, method: Method[Any], task: Task, engine: Engine) -> Forecast:
    """Rehearse the task on a copy of the method, which stays as it is."""
    count = plan.batch_size
    chosen = torch.arange(count) % plan.num_training_images
    sample = task.training.select(chosen)
    seconds_before = seconds_after = 0.0
    if engine.views is not None:
        part = sample.stack[:8]
        began = time.monotonic()
        engine.views.plain(part)
        a_photo = (time.monotonic() - began) / len(part)
        seconds_before = a_photo * plan.num_training_images * plan.num_views
        seconds_after = a_photo * len(plan.held_out)
        engine = replace(engine, views=replace(engine.views, num_views=1))
    actor = copy.copy(method)
    actor.memory = BorrowedMemory(method.memory)
    infer = Nothing(lambda network: engine.infer(network, sample.stack[:1]))
    # Which images would be remembered makes no difference here, and choosing them at random takes no features.
    actor.workplace = replace(method.workplace, infer=infer, selection="random")
    if plan.before is not None:
        actor.network = copy.deepcopy(method.network)
    phases, num_parameters = [], 0
    with torch.random.fork_rng(devices=[]):
        for phase in phases_of(actor, task):
            if isinstance(phase, Phase):
                num_steps = -(-len(phase.data) // plan.batch_size)
                seconds = seconds_an_epoch(phase, sample, task.index, engine, plan.augmentation, plan.batch_size)
                phases.append(TimedPhase(phase.name, phase.fit.epochs, num_steps * seconds))
                num_parameters = max(num_parameters, sum(value.numel() for value in phase.network.parameters()))
    maps = 0
    if engine.views is not None:
        maps = engine.views.plain(sample.stack[:1]).numel() * 2 * plan.num_training_images * plan.num_views
    images = sample.stack.num_copies * sample.stack.shape[1:].numel() * plan.num_training_images
    num_bytes = BYTES_OF_PROCESS + images + maps + BYTES_OF_STATE * num_parameters
    return Forecast(seconds_before, tuple(phases), num_bytes, seconds_after)


class LearnClock:
    """Passes events on, with the time left of the whole `learn` in place of that of a phase."""

    def __init__(self, listener: events.Listener, forecast: Forecast) -> None:
        self._listener = listener
        self._phases = {phase.name: phase for phase in forecast.phases}
        self._ahead = [phase.name for phase in forecast.phases]
        self._paces: list[float] = []
        self._before, self._after = forecast.seconds_before, forecast.seconds_after
        self._began, self._ended = time.monotonic(), 0.0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.PhaseStarted):
            if self._ended:  # what came after the phase before says best what comes after this one
                self._after = time.monotonic() - self._ended
            elif self._before:  # and until then, how much slower the machine was than in the rehearsal
                self._after *= (time.monotonic() - self._began) / self._before
            if event.phase in self._ahead:  # a second try takes nothing away
                self._ahead = self._ahead[self._ahead.index(event.phase) + 1 :]
        if isinstance(event, events.PhaseEnded):
            self._ended = time.monotonic()
        if isinstance(event, events.EpochEnded):
            if event.phase in self._phases:
                self._paces.append(event.seconds / max(self._phases[event.phase].seconds_an_epoch, 1e-9))
            later = (median_low(self._paces) if self._paces else 1.0) * sum(
                self._phases[name].seconds for name in self._ahead
            )
            later += self._after * (len(self._ahead) + 1)
            event = replace(event, seconds_left=event.seconds_left + later)
        self._listener(event)
