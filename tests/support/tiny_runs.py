"""Runs of a second, whole or interrupted, and what they leave behind."""

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foster.errors import FosterError
from foster.events import Event, PhaseStarted, TaskEnded, TaskStarted, ignore
from foster.experiment.event_log import FollowedRun
from foster.experiment.folder import RunFolder
from foster.experiment.plan import Plan
from foster.experiment.run import Experiment
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import Stopped, StopRequest

TIME_FIELDS = ("train_seconds", "task_seconds")

OVERRIDES = (
    "dataset=synthetic",
    "synthetic.num_classes=6",
    "synthetic.train_per_class=12",
    "synthetic.test_per_class=4",
    "synthetic.image_size=8",
    "base_classes=2",
    "increment=2",
    "memory_total=none",
    "memory_per_class=4",
    "backbone=resnet8",
    "batch_size=16",
    "augmentation=shift",
    "device=cpu",
    "engine.threads=1",
    "checkpoint_minutes=0",
    "epochs_scale=0.012",
)
"""3 tasks; phases of 1 to 2 epochs of 2 to 3 steps; a checkpoint after every epoch."""


SMALLER = {"ridge": ("ridge.num_features=64",)}
"""What a method needs beside that to be quick."""


def tiny_settings(method: str = "foster", *overrides: str) -> Settings:
    return load_settings("digits", [*OVERRIDES, f"method={method}", *SMALLER.get(method, ()), *overrides])


def start(
    settings: Settings, path: Path, listener: Callable[[Event], None] = ignore, stop: StopRequest | None = None
) -> dict[str, Any]:
    folder = RunFolder(path)
    with folder.opened(settings):
        return Experiment(settings, folder, listener, stop or StopRequest()).run()


def resume(path: Path, listener: Callable[[Event], None] = ignore, stop: StopRequest | None = None) -> dict[str, Any]:
    folder = RunFolder(path)
    with folder.opened():
        return Experiment(folder.settings(), folder, listener, stop or StopRequest()).run()


def start_or_resume(path: Path, settings: Settings) -> None:
    """What a process does that is killed sooner or later."""
    torch.set_num_threads(1)
    resume(path) if RunFolder(path).holds_run else start(settings, path)


class Interruption(StopRequest):
    """A stop that is asked for when an event tells, or some optimizer steps after that."""

    def __init__(self, is_the_place: Callable[[Event], bool], num_steps: int = 0) -> None:
        super().__init__()
        self._is_the_place = is_the_place
        self._num_steps = num_steps
        self._is_at_once = num_steps == 0
        self._is_reached = False

    def listen(self, event: Event) -> None:
        self._is_reached = self._is_reached or self._is_the_place(event)
        if self._is_reached and self._is_at_once:
            self.set(signal.SIGINT)

    @property
    def is_set(self) -> bool:
        """Asked once after every step."""
        if self._is_reached:
            self._num_steps -= 1
        if self._is_reached and self._num_steps < 0:
            self.set(signal.SIGINT)
        return self.signal_number != 0

    def raise_if_set(self) -> None:
        if self.signal_number:
            raise Stopped(self.signal_number)


def interrupted(settings: Settings, path: Path, interruption: Interruption) -> list[Event]:
    """The events of a run, begun or gone on with, that was stopped at its place."""
    told: list[Event] = []

    def listener(event: Event) -> None:
        told.append(event)
        interruption.listen(event)

    try:
        if RunFolder(path).holds_run:
            resume(path, listener, interruption)
        else:
            start(settings, path, listener, interruption)
    except Stopped:
        return told
    raise AssertionError("the run was never interrupted")


def stopped_run(path: Path, *overrides: str) -> Path:
    """A run of replay that was stopped after its first task."""
    after_first_task = Interruption(lambda event: isinstance(event, TaskEnded))
    interrupted(tiny_settings("replay", *overrides), path, after_first_task)
    return path


def only_line(error: pytest.ExceptionInfo[FosterError]) -> str:
    """The words of an error, which are one line."""
    assert "\n" not in str(error.value)
    return str(error.value)


@dataclass(frozen=True)
class Outcome:
    """All that a finished run leaves, apart from how long it took and how much memory of a GPU."""

    results: dict[str, Any]
    parts: dict[str, dict[str, Tensor]]
    losses: dict[tuple[int, str, int], dict[str, float]]
    """Of every epoch, by task, phase and epoch."""


def records_of(events: Path) -> list[dict[str, Any]]:
    """The lines of `events.jsonl` that are events."""
    return [event.record() for event in FollowedRun(events.parent).read_events()]


def outcome(path: Path) -> Outcome:
    results = json.loads((path / "results.json").read_text(encoding="utf-8"))
    assert results["finished"] is True
    warned: list[str] = []
    checkpoint = RunFolder(path).checkpoints.load(warned.append)
    assert checkpoint is not None
    assert not warned
    for key in ("peak_gpu_bytes", "peak_gpu_reserved_bytes"):  # what was there before in the same process counts, too
        del results["environment"][key]
    ended = [line for line in records_of(path / "events.jsonl") if line["event"] == "EpochEnded"]
    losses = {(line["task"], line["phase"], line["epoch"]): line["losses"] for line in ended}
    return Outcome({key: value for key, value in results.items() if key not in TIME_FIELDS}, checkpoint.parts, losses)


def assert_same(found: Outcome, expected: Outcome) -> None:
    """Bit for bit: results, losses, weights and memory."""
    assert found.results == expected.results
    assert found.losses == expected.losses
    assert found.parts.keys() == expected.parts.keys()
    for part, tensors in expected.parts.items():
        assert found.parts[part].keys() == tensors.keys()
        for name, tensor in tensors.items():
            actual = found.parts[part][name]
            torch.testing.assert_close(actual, tensor, rtol=0, atol=0, equal_nan=True, msg=f"{part} {name} differs")


def told_kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def assert_is_planned(plan: Plan, results: dict[str, Any], told: Sequence[Event]) -> None:
    """The results of the run, and the events that it told, are those of its plan."""
    tasks = [event for event in told if isinstance(event, TaskStarted)]
    phases = [event for event in told if isinstance(event, PhaseStarted)]
    assert [(event.num_known + event.num_new, event.num_images) for event in tasks] == [
        (task.num_total, task.new_images + task.exemplars) for task in plan.tasks
    ]
    assert [(event.task, event.phase, event.epochs, event.epochs * event.steps) for event in phases] == [
        (task.index, *phase) for task in plan.tasks for phase in task.phases
    ]
    assert results["params_by_task"] == [task.params for task in plan.tasks]
    assert results["memory_bytes"] == plan.memory_bytes
    assert plan.total_epochs == sum(event.epochs for event in phases)
    assert plan.training_bytes > plan.memory_bytes >= 0
