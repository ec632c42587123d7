"""How the runs of a sweep stand: read from their events, shown as a live table or as plain lines."""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, Self, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foster.experiment.folder import EVENTS
from foster.reports.text import ABSENT, duration
from foster.system.files import open_plain


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


STYLES = {
    State.WAITING: "dim",
    State.FINISHED: "green",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.KILLED: "red",
}

URGENCY = (State.RUNNING, State.FAILED, State.KILLED, State.STOPPED, State.WAITING, State.FINISHED)
"""Whose row comes first."""

LEAVES_FIRST = ("epoch", "phase", "time", "task")
"""Columns that a narrow terminal leaves out, one after the other until the names of the runs have room."""

NARROWEST_NAME = 12

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
    _num_read: int = 0

    def read_events(self) -> None:
        """Take in what the run has written since the last call; a line that is not whole yet waits for the next."""
        try:
            with open(self.folder / EVENTS, "rb", opener=open_plain) as file:
                file.seek(self._num_read)
                new = file.read()
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._num_read += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict):
                    self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
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
        """How it ended, in a few words."""
        if self.state is State.FINISHED and "average_incremental_accuracy" in self.told:
            return f"finished, average incremental accuracy {self.told['average_incremental_accuracy']:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)


class Display(Protocol):
    """Shows the runs of a sweep while it lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def show(self, runs: Sequence[RunStatus]) -> None: ...

    def say(self, line: str) -> None: ...


def display_for(stream: TextIO | None = None) -> Display:
    """What suits `stream` (standard error by default): a live table on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and not Console(file=stream).is_dumb_terminal:
        return LiveTable(stream)
    return PlainLines(stream)


class PlainLines:
    """A line whenever a run starts, ends or has learned a task. A stream that is gone never stops a sweep."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, tuple[State, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Every line is flushed when it is written: nothing is left to do."""

    def show(self, runs: Sequence[RunStatus]) -> None:
        for run in runs:
            before = self._shown.get(run.name, (State.WAITING, run.accuracy))
            self._shown[run.name] = now = (run.state, run.accuracy)
            if now[0] is not before[0]:
                self.say(f"{run.name}: {_started(run) if run.state is State.RUNNING else run.outcome}")
            elif now != before:
                self.say(f"{run.name}: {run.accuracy} % after task {run.told['num_learned']}/{run.told['num_tasks']}")

    def say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(line, file=self._stream, flush=True)


class LiveTable:
    """A table of the runs that is redrawn in place and stays on the screen at the end; failures stand above it."""

    def __init__(self, stream: TextIO) -> None:
        self._failed: set[str] = set()
        console = Console(file=stream, highlight=False)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError, ValueError):
            self._live.stop()

    def show(self, runs: Sequence[RunStatus]) -> None:
        for run in runs:
            if run.state is State.FAILED and run.name not in self._failed:
                self._failed.add(run.name)
                self.say(f"{run.name}: {run.outcome}")
        with suppress(OSError, ValueError):
            self._live.update(StatusTable(runs), refresh=True)

    def say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            self._live.console.print(Text(line), soft_wrap=True)


@dataclass(frozen=True)
class StatusTable:
    """How many runs there are of each state, and below it as many of them as the screen has lines for, those that run
    or failed before all others."""

    runs: Sequence[RunStatus]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield (head := Text(counts(self.runs), style="bold"))
        # The last line is the cursor's.
        room = options.size.height - len(console.render_lines(head, options)) - 1
        names = dict(zip((run.name for run in self.runs), short_names([run.name for run in self.runs]), strict=True))
        urgent = sorted(self.runs, key=lambda run: URGENCY.index(run.state))
        for num_rows in range(min(len(urgent), room), 0, -1):
            table = _table(urgent[:num_rows], names, options.max_width)
            if len(console.render_lines(table, options)) <= room:
                yield table
                break


def _table(runs: Sequence[RunStatus], names: Mapping[str, str], width: int) -> Table:
    cells = {
        "state": [f"{run.state} ({run.place})" if run.state is State.RUNNING else str(run.state) for run in runs],
        "task": [run.task for run in runs],
        "phase": [run.phase if run.state is not State.FINISHED else ABSENT for run in runs],
        "epoch": [run.epoch if run.state is not State.FINISHED else ABSENT for run in runs],
        "accuracy": [run.accuracy for run in runs],
        "time": [run.time for run in runs],
    }
    for header in LEAVES_FIRST:
        if sum(1 + max(map(len, (name, *column))) for name, column in cells.items()) + NARROWEST_NAME > width:
            del cells[header]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    # Of a name that is too long for the line, the end matters most: it goes on below.
    table.add_column("run", overflow="fold", ratio=1)
    for header in cells:
        table.add_column(header, justify="left" if header in ("state", "phase") else "right", no_wrap=True)
    for run, *row in zip(runs, *cells.values(), strict=True):
        table.add_row(Text(names[run.name]), *map(Text, row), style=STYLES.get(run.state))
    return table


def short_names(names: Sequence[str]) -> list[str]:
    """Names of runs without what all of them share: `digits-b0-inc2-foster-s1,batch_size=8` -> `s1`.

    They begin with words between dashes and go on with settings between commas. One run alone keeps its name.
    """
    if len(names) == 1:
        return list(names)
    words = [name.split(",")[0].split("-") for name in names]
    settings = [name.split(",")[1:] for name in names]
    num_shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    shared = set(settings[0]).intersection(*settings)
    short = [
        ["-".join(own_words[num_shared:]), *(setting for setting in own_settings if setting not in shared)]
        for own_words, own_settings in zip(words, settings, strict=True)
    ]
    return [",".join(filter(None, parts)) or name for parts, name in zip(short, names, strict=True)]


def counts(runs: Sequence[RunStatus]) -> str:
    """`6 runs: 2 running, 1 finished, 3 waiting`."""
    found = Counter(run.state for run in runs)
    parts = ", ".join(f"{found[state]} {state}" for state in State if found[state])
    return f"{number_of_runs(len(runs))}: {parts}"


def number_of_runs(count: int) -> str:
    return f"{count} {'run' if count == 1 else 'runs'}"


def _started(run: RunStatus) -> str:
    return f"{'continued' if run.is_continued else 'started'} on {run.place}"
