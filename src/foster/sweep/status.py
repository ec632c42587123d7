"""How one run of a sweep stands, as its events tell it."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from foster.reports.following import EventReader
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


TOLD = {
    "RunStarted": ("num_tasks",),
    "RunResumed": ("task", "phase"),
    "TaskStarted": ("task", "num_tasks"),
    "PhaseStarted": ("task", "num_tasks", "phase", "epochs"),
    "EpochEnded": ("task", "phase", "epoch", "epochs"),
    "TaskEnded": ("task", "accuracy"),
    "RunEnded": ("average_incremental_accuracy", "seconds"),
}
"""What is taken from each kind of event."""


@dataclass
class RunStatus:
    """One run of a sweep as its events tell it so far."""

    name: str
    folder: Path
    state: State = State.WAITING
    place: str = ""
    began: float = 0.0
    message: str = ""
    is_continued: bool = False
    told: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _events(self) -> EventReader:
        return EventReader(self.folder)

    def read_events(self) -> None:
        """Take in what the run has written since the last call."""
        for event in self._events.new_events():
            name = str(event.get("event"))
            if name == "PhaseStarted":
                self.told.pop("epoch", None)
            if name == "TaskEnded":
                self.told["num_learned"] = event.get("task", 0) + 1
            self.told |= {key: event[key] for key in TOLD.get(name, ()) if key in event}

    @property
    def task(self) -> str:
        """`3/10`: the task that is being learned."""
        if "task" not in self.told or "num_tasks" not in self.told:
            return ABSENT
        return f"{min(self.told['task'] + 1, self.told['num_tasks'])}/{self.told['num_tasks']}"

    @property
    def phase(self) -> str:
        return self.told.get("phase") or ABSENT

    @property
    def epoch(self) -> str:
        """`12/170`: how many epochs of the phase are done."""
        if "epochs" not in self.told:
            return ABSENT
        return f"{min(self.told.get('epoch', -1) + 1, self.told['epochs'])}/{self.told['epochs']}"

    @property
    def accuracy(self) -> str:
        """On all classes seen after the last task that was learned."""
        return f"{self.told['accuracy']:.2f}" if "accuracy" in self.told else ABSENT

    @property
    def time(self) -> str:
        """Of a finished run what its training took in all, of a running one how long it has been running now."""
        if self.state is State.FINISHED and "seconds" in self.told:
            return duration(self.told["seconds"])
        return duration(time.monotonic() - self.began) if self.state is State.RUNNING else ABSENT

    @property
    def outcome(self) -> str:
        """How it started or ended, in a few words."""
        if self.state is State.RUNNING:
            return f"{'continued' if self.is_continued else 'started'} on {self.place}"
        if self.state is State.FINISHED and "average_incremental_accuracy" in self.told:
            return f"finished, average incremental accuracy {self.told['average_incremental_accuracy']:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)
