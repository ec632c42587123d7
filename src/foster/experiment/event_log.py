"""`events.jsonl`: a line for each event of a run or a `learn`; and the state of the run that follows from its events.

Progress on the terminal, `foster watch`, sweeps and the figure of losses read this one state.
"""

import datetime as dt
import json
import statistics
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from foster import events
from foster.errors import FolderError, FosterError, explained
from foster.events import Event, Listener
from foster.system.files import append_line, read_limited

EVENTS = "events.jsonl"
MAX_EVENTS_BYTES, MAX_LINE_BYTES = 2**28, 2**24


def note(folder: Path, event: Event) -> None:
    """Add a line to a folder's events. Each line is written at once: a crash can only cut the last one."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    append_line(folder / EVENTS, json.dumps({"time": now, **event.record()}))


def noting(listener: Listener, folder: Path) -> Listener:
    """A listener that also writes the events of a `learn` to `folder`. A failure to write does not stop the learn."""

    def tell(event: Event) -> None:
        if not isinstance(event, events.Downloading):
            with suppress(FosterError, OSError):
                folder.mkdir(parents=True, exist_ok=True)
                note(folder, event)
        listener(event)

    return tell


def end_cut_line(folder: Path) -> None:
    """End a line that a crash has cut, so that the next event starts on a line of its own."""
    path = folder / EVENTS
    try:
        last = read_limited(path, MAX_EVENTS_BYTES, start=max(0, path.stat().st_size - 1))
    except FileNotFoundError:
        return
    if last not in (b"", b"\n"):
        append_line(path, "")


def _event_in(line: bytes) -> Event | None:
    """The event in a line; None for a line that holds no event, and for one whose objects would fill the memory."""
    if len(line) > MAX_LINE_BYTES:
        return None
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict) and (adapter := _adapters().get(str(record.get("event")))):
            return adapter.validate_python(record)
    return None


@cache
def _adapters() -> dict[str, TypeAdapter[Event]]:
    return {kind.__name__: TypeAdapter(kind) for kind in Event.__subclasses__()}


@dataclass
class RunState:
    """The state of a run or a `learn` after the events so far. Tasks and epochs count from 0."""

    method: str = ""
    scenario: str = ""
    is_learn: bool = False
    num_tasks: int = 0
    task: int | None = None
    phase: str = ""
    epochs: int | None = None
    """The number of epochs of the phase; None before the first phase."""
    num_epochs_done: int = 0
    decoding: events.Decoding | None = None
    """How many photos a `learn` has read."""
    phase_seconds_left: float | None = None
    trained: dict[tuple[int, str, int], events.EpochEnded] = field(default_factory=dict)
    """By task, phase and epoch. For an epoch that was trained again after a crash, the later event."""
    evaluated: dict[str, dict[int, float]] = field(default_factory=dict)
    """Accuracy in percent by variant and task."""
    learned: dict[int, events.TaskEnded] = field(default_factory=dict)
    end: events.RunEnded | events.RunFailed | None = None
    """The last event, if the run ended with it."""

    def add(self, event: Event) -> None:
        self.end = event if isinstance(event, events.RunEnded | events.RunFailed) else None
        match event:
            case events.RunStarted():
                self.method, self.scenario, self.num_tasks = event.method, event.scenario, event.num_tasks
            case events.RunResumed():
                self.task, self.phase = event.task, event.phase
            case events.LearnPlanned():
                self.is_learn = True
            case events.Decoding():
                self.decoding = event
            case events.TaskStarted():
                self.task, self.num_tasks = event.task, event.num_tasks
            case events.PhaseStarted():
                self.task, self.num_tasks, self.phase = event.task, event.num_tasks, event.phase
                self.epochs, self.num_epochs_done, self.phase_seconds_left = event.epochs, 0, None
            case events.EpochEnded():
                self.task, self.phase, self.epochs = event.task, event.phase, event.epochs
                self.num_epochs_done, self.phase_seconds_left = event.epoch + 1, event.seconds_left
                self.trained[event.task, event.phase, event.epoch] = event
            case events.Evaluated():
                self.evaluated.setdefault(event.variant, {})[event.task] = event.accuracy
            case events.TaskEnded():
                self.learned[event.task] = event

    @property
    def losses(self) -> dict[str, list[float]]:
        """Each loss term of the current phase, epoch by epoch."""
        losses: dict[str, list[float]] = {}
        for (task, phase, _), epoch in self.trained.items():
            if (task, phase) == (self.task, self.phase):
                for term, value in epoch.losses.items():
                    losses.setdefault(term, []).append(value)
        return losses

    @property
    def seconds_left(self) -> float | None:
        """What this phase has left, as its last event says, and for each later task the mean of the earlier ones."""
        if self.phase_seconds_left is None or self.task is None or self.end is not None:
            return None
        past = [ended.seconds for ended in self.learned.values()]
        later = past[1:] or past
        return self.phase_seconds_left + (self.num_tasks - self.task - 1) * (statistics.fmean(later) if later else 0.0)


class State(StrEnum):
    """The state of a run's process."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """No process is running; the run has saved its state."""
    KILLED = "killed"
    """The process ended before it could save: the run continues from its last checkpoint."""


@dataclass
class FollowedRun:
    """A run whose event log is read while it is written."""

    folder: Path
    progress: RunState = field(default_factory=RunState)
    _num_read: int = 0

    def read_events(self) -> list[Event]:
        """The events since the last call, which are added to `progress`. An incomplete line is read by the next call; a
        line that is no event of this version is left out.

        Epochs after the last checkpoint before a crash are trained again: their events come twice.
        """
        path, new = self.folder / EVENTS, b""
        with explained(FolderError, f"cannot read '{path}'"), suppress(FileNotFoundError):
            new = read_limited(path, MAX_EVENTS_BYTES, start=self._num_read)
        whole = new[: new.rfind(b"\n") + 1]
        self._num_read += len(whole)
        found = [event for line in whole.split(b"\n") if (event := _event_in(line)) is not None]
        for event in found:
            self.progress.add(event)
        return found
