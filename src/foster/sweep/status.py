"""How one run of a sweep stands, as its events tell it."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from foster.experiment.event_log import EventReader
from foster.reports.text import ABSENT, duration


class State(StrEnum):
    """Where a run of a sweep stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """It was asked to stop, and has saved where it was."""
    KILLED = "killed"
    """It was ended before it could save: it continues from its last checkpoint."""


TELLING = ("RunStarted", "RunResumed", "TaskStarted", "PhaseStarted", "EpochEnded", "TaskEnded", "RunEnded")
"""The events whose facts are taken in; of those with the same one, the last counts."""


@dataclass
class RunStatus:
    """One run of a sweep as its events tell it so far."""

    name: str
    folder: Path
    state: State = State.WAITING
    slot: str = ""
    began: float = 0.0
    message: str = ""
    is_continued: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _events(self) -> EventReader:
        return EventReader(self.folder)

    def read_events(self) -> None:
        """Take in what the run has written since the last call."""
        for event in self._events.new_events():
            name = str(event.get("event"))
            if name == "PhaseStarted":
                self.facts.pop("epoch", None)
            if name == "TaskEnded":
                self.facts["num_learned"] = event.get("task", 0) + 1
            if name in TELLING:
                self.facts |= event

    @property
    def task(self) -> str:
        """`3/10`: the task that is being learned."""
        if "task" not in self.facts or "num_tasks" not in self.facts:
            return ABSENT
        return f"{min(self.facts['task'] + 1, self.facts['num_tasks'])}/{self.facts['num_tasks']}"

    @property
    def phase(self) -> str:
        return self.facts.get("phase") or ABSENT

    @property
    def epoch(self) -> str:
        """`12/170`: how many epochs of the phase are done."""
        if "epochs" not in self.facts:
            return ABSENT
        return f"{min(self.facts.get('epoch', -1) + 1, self.facts['epochs'])}/{self.facts['epochs']}"

    @property
    def accuracy(self) -> str:
        """On all classes seen after the last task that was learned."""
        return f"{self.facts['accuracy']:.2f}" if "accuracy" in self.facts else ABSENT

    @property
    def time(self) -> str:
        """Of a finished run what its training took in all, of a running one how long it has been running now."""
        if self.state is State.FINISHED and "seconds" in self.facts:
            return duration(self.facts["seconds"])
        return duration(time.monotonic() - self.began) if self.state is State.RUNNING else ABSENT

    @property
    def outcome(self) -> str:
        """How it started or ended, in a few words."""
        if self.state is State.RUNNING:
            return f"{'continued' if self.is_continued else 'started'} on {self.slot}"
        if self.state is State.FINISHED and "average_incremental_accuracy" in self.facts:
            return f"finished, average incremental accuracy {self.facts['average_incremental_accuracy']:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)
