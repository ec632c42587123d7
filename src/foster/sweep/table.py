"""The runs of a sweep on the screen, from their events: a live table, or plain lines."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Self, TextIO

from rich import box
from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foster.events import RunEnded
from foster.experiment.event_log import FollowedRun, State
from foster.system.counts import ABSENT, counted, duration


@dataclass
class RunStatus(FollowedRun):
    """One run of a sweep."""

    slot: str = ""
    began: float = 0.0
    message: str = ""
    is_continued: bool = False

    @property
    def accuracy(self) -> str:
        """On all classes seen after the last task that was learned."""
        return ABSENT if self.told.accuracy is None else f"{self.told.accuracy:.2f}"

    @property
    def time(self) -> str:
        """Of a finished run what its training took in all, of a running one how long it has been running now."""
        if self.state is State.FINISHED and isinstance(self.told.end, RunEnded):
            return duration(self.told.end.seconds)
        return duration(time.monotonic() - self.began) if self.state is State.RUNNING else ABSENT

    @property
    def outcome(self) -> str:
        """How it started or ended, in a few words."""
        if self.state is State.RUNNING:
            return f"{'continued' if self.is_continued else 'started'} on {self.slot}"
        if self.state is State.FINISHED and isinstance(self.told.end, RunEnded):
            return f"finished, average incremental accuracy {self.told.end.average_incremental_accuracy:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)


STYLES = {
    State.WAITING: "dim",
    State.FINISHED: "green",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.KILLED: "red",
}

URGENCY = (State.RUNNING, State.FAILED, State.KILLED, State.STOPPED, State.WAITING, State.FINISHED)
"""The order of the rows: those that do not fit on the screen are cut off at the end."""


def display_for(stream: TextIO | None = None) -> "Display":
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
                self.say(f"{run.name}: {run.outcome}")
            elif now != before:
                self.say(f"{run.name}: {run.accuracy} % after task {len(run.told.learned)}/{run.told.num_tasks}")

    def say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(line, file=self._stream, flush=True)


class LiveTable:
    """A table of the runs that is redrawn in place and stays on the screen at the end; failures stand above it."""

    def __init__(self, stream: TextIO) -> None:
        self._failed: set[str] = set()
        console = Console(file=stream, highlight=False)
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty(), vertical_overflow="crop"
        )

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
            self._live.update(Group(Text(counts(runs), style="bold"), status_table(runs)), refresh=True)

    def say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            self._live.console.print(Text(line), soft_wrap=True)


Display = PlainLines | LiveTable


def status_table(runs: Sequence[RunStatus]) -> Table:
    """A row a run, those that run or failed before all others."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, expand=True)
    for name in ("run", "state", "task", "phase", "epoch", "accuracy", "time"):
        justify: JustifyMethod = "left" if name in ("run", "state", "phase") else "right"
        table.add_column(name, justify=justify, overflow="fold", min_width=16 if name == "run" else None)
    names = short_names([run.name for run in runs])
    for run, name in sorted(zip(runs, names, strict=True), key=lambda pair: URGENCY.index(pair[0].state)):
        told, is_over = run.told, run.state is State.FINISHED
        cells = (
            name,
            f"{run.state} ({run.slot})" if run.state is State.RUNNING else str(run.state),
            ABSENT if told.task is None else f"{told.task + 1}/{told.num_tasks}",
            ABSENT if is_over else told.phase or ABSENT,
            ABSENT if is_over or told.epochs is None else f"{told.num_epochs_done}/{told.epochs}",
            run.accuracy,
            run.time,
        )
        table.add_row(*map(Text, cells), style=STYLES.get(run.state))
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
    num_in = Counter(run.state for run in runs)
    parts = ", ".join(f"{num_in[state]} {state}" for state in State if num_in[state])
    return f"{counted(len(runs), 'run')}: {parts}"
