"""Progress of a run on standard error: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from foster import events
from foster.events import Event, Listener
from foster.reports import progress_texts as texts
from foster.system.counts import counted, duration

SECONDS_BETWEEN_LINES = 30.0
"""A plain line is written at least this often while training or downloading."""

SECONDS_APART = 2.0
"""And the lines of one phase or download at least this far apart, so that short phases do not flood a log."""


@contextmanager
def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Iterator[Listener]:
    """The listener that suits `stream` (standard error by default): live on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:  # Python has no standard error where it was closed
        yield events.ignore
    elif stream.isatty() and not Console(file=stream).is_dumb_terminal:
        with TerminalProgress(stream) as listener:
            yield listener
    else:
        yield LineProgress(stream)  # every line is flushed when it is written


class _Progress:
    """What is told of each event in a line that stays; what passes, a subclass follows in its own way.

    An event that it does not know is passed over. A stream or a terminal that is gone never stops a run.
    """

    def __init__(self) -> None:
        self._num_tasks = 0
        self._is_learn = False

    def __call__(self, event: Event) -> None:
        with suppress(OSError, ValueError):  # a pipe whose reader left, a closed file
            self._tell(event)
            self._follow(event)

    def _tell(self, event: Event) -> None:
        match event:
            case events.RunStarted():
                self._num_tasks = event.num_tasks
                self._say(texts.run_started(event), "bold")
            case events.RunResumed():
                self._say(texts.resumed(event, self._num_tasks, self._is_learn))
            case events.TaskStarted() | events.PhaseStarted():
                self._num_tasks = event.num_tasks
            case events.LearnPlanned():
                self._is_learn = True
                for line in texts.planned(event):
                    self._say(line)
            case events.Evaluated():
                self._say(texts.evaluated(event, self._num_tasks, self._is_learn), "green")
            case events.PhotosDecoded():
                self._say(texts.decoded(event), "dim")
            case events.Waiting():
                self._say(event.message)
            case events.Warned():
                self._say(f"warning: {event.message}", "yellow")
            case events.RunEnded():
                self._say(texts.run_ended(event), "bold")

    def _where(self, event: events.PhaseStarted | events.EpochEnded | events.PhaseEnded) -> str:
        return texts.where(event, self._num_tasks, self._is_learn)

    def _say(self, line: str, style: str = "") -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def _follow(self, event: Event) -> None:
        """Show how far it is."""
        raise NotImplementedError


class LineProgress(_Progress):
    """Plain lines: where each phase starts and ends, now and then how far it is, and every evaluation."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._stream = stream
        self._clock = clock
        self._last_line = 0.0
        self._tenths = 0

    def _follow(self, event: Event) -> None:
        match event:
            case events.TaskStarted() if not self._is_learn:  # which has told what it will do, and has one task
                self._say(texts.task_started(event))
            case events.PhaseStarted():
                self._tenths = 0
                self._say(f"{self._where(event)}: {counted(event.epochs, 'epoch')} of {counted(event.steps, 'step')}")
            case events.EpochEnded():
                # The line that ends the phase says the rest.
                if event.epoch + 1 < event.epochs and self._is_due(event.epoch + 1, event.epochs):
                    left = duration(event.seconds_left)
                    losses = texts.losses(event, self._is_learn)
                    self._say(f"{self._where(event)}: epoch {event.epoch + 1}/{event.epochs}, {losses}, {left} left")
            case events.PhaseEnded():
                self._say(f"{self._where(event)}: done in {duration(event.seconds)}")
            case events.Downloading():
                self._downloading(event)
            case events.Decoding():
                if self._is_due(event.num_done, event.num_total) and event.num_done < event.num_total:
                    self._say(f"{texts.decoding(event)}: {event.num_done:,} of {event.num_total:,}")

    def _downloading(self, event: events.Downloading) -> None:
        if not event.num_received:
            self._tenths = 0
            self._say(f"downloading {event.name}")
            return
        # Without an end there are no tenths of the way, only time that passes.
        is_due = self._is_due(event.num_received, event.num_total) if event.num_total else self._is_due(0, 1)
        if is_due or event.num_received == event.num_total:
            self._say(f"downloading {event.name}: {texts.received(event)}")

    def _is_due(self, num_done: int, num_all: int) -> bool:
        waited = self._clock() - self._last_line
        tenths = 10 * num_done // max(num_all, 1)
        if tenths == self._tenths and waited < SECONDS_BETWEEN_LINES:
            return False
        self._tenths = tenths
        return waited >= SECONDS_APART

    def _say(self, line: str, style: str = "") -> None:
        self._last_line = self._clock()
        print(line, file=self._stream, flush=True)


class TerminalProgress(_Progress):
    """One live line with task, phase, epochs, loss and time left; evaluations stay on the screen above it.

    Leaving the context, also by Ctrl-C, takes the live line away.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        console = Console(file=stream, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(min_width=8, max_width=32, ratio=1)),
            TextColumn("{task.fields[count]}", justify="right", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[losses]}", table_column=Column(no_wrap=True, ratio=2)),
            TextColumn("{task.fields[left]}", style="cyan", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            refresh_per_second=4,
            expand=True,
            # Standard output may be a file: only what would land on this terminal may go around the live line.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._bar = self._progress.add_task("starting", total=1, count="", losses="", left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError, ValueError):
            self._progress.stop()

    def _follow(self, event: Event) -> None:
        match event:
            case events.RunStarted():
                self._show("preparing")
            case events.TaskStarted():
                self._show("preparing" if self._is_learn else f"task {event.task + 1}/{event.num_tasks}")
            case events.PhaseStarted():
                self._show(self._where(event), total=event.epochs, count=f"0/{event.epochs}")
            case events.EpochEnded():
                self._show(
                    self._where(event),
                    total=event.epochs,
                    completed=event.epoch + 1,
                    count=f"{event.epoch + 1}/{event.epochs}",
                    losses=texts.losses(event, self._is_learn),
                    left=f"{duration(event.seconds_left)} left",
                )
            case events.PhaseEnded():
                self._show(f"{self._where(event)}: evaluating")
            case events.Downloading():
                done = event.num_received if event.num_total else 0
                amount = texts.received(event) if event.num_received else ""
                self._show(f"downloading {event.name}", total=event.num_total or 1, completed=done, count=amount)
            case events.Decoding():
                count = f"{event.num_done:,}/{event.num_total:,}"
                self._show(texts.decoding(event), total=event.num_total, completed=event.num_done, count=count)
            case events.Waiting():
                self._show("waiting")
            case events.RunEnded():
                self._show("done")

    def _show(
        self, text: str, *, total: int = 1, completed: int = 0, count: str = "", losses: str = "", left: str = ""
    ) -> None:
        self._progress.update(
            self._bar, total=total, completed=completed, description=text, count=count, losses=losses, left=left
        )

    def _say(self, line: str, style: str = "") -> None:
        self._progress.console.print(Text(line, style=style), soft_wrap=True)
