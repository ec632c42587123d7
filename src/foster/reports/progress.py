"""Progress of a run on standard error: a live line on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from foster import events
from foster.events import Event, Listener
from foster.reports.text import duration

SECONDS_BETWEEN_LINES = 30.0
"""A plain line is written at least this often while training or downloading."""

SECONDS_APART = 2.0
"""And the lines of one phase or download at least this far apart, so that short phases do not flood a log."""


def progress_for(stream: TextIO | None = None, quiet: bool = False) -> AbstractContextManager[Listener]:
    """The listener that suits `stream` (standard error by default): live on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:  # Python has no standard error where it was closed
        return nullcontext(_ignore)
    if stream.isatty() and not Console(file=stream).is_dumb_terminal:
        return TerminalProgress(stream)
    return LineProgress(stream)


def _ignore(event: Event) -> None:
    """Nothing is shown."""


class LineProgress:
    """Plain lines: where each phase starts and ends, now and then how far it is, and every evaluation.

    An event that it does not know is passed over. A stream that cannot be written to any more never stops a run.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._num_tasks = 0
        self._last_line = 0.0
        self._tenths = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Every line is flushed when it is written: nothing is left to do."""

    def __call__(self, event: Event) -> None:
        match event:
            case events.RunStarted():
                self._num_tasks = event.num_tasks
                self._write(_run_started(event))
            case events.RunResumed():
                self._write(_resumed(event, self._num_tasks))
            case events.TaskStarted():
                self._num_tasks = event.num_tasks
                self._write(_task_started(event))
            case events.PhaseStarted():
                self._num_tasks, self._tenths = event.num_tasks, 0
                self._write(f"{self._place(event)}: {event.epochs} epochs of {event.steps} steps")
            case events.EpochEnded():
                # The line that ends the phase says the rest.
                if event.epoch + 1 < event.epochs and self._is_due(event.epoch + 1, event.epochs):
                    left = duration(event.seconds_left)
                    self._write(
                        f"{self._place(event)}: epoch {event.epoch + 1}/{event.epochs}, {_losses(event)}, {left} left"
                    )
            case events.PhaseEnded():
                self._write(f"{self._place(event)}: done in {duration(event.seconds)}")
            case events.Evaluated():
                self._write(f"task {event.task + 1}/{self._num_tasks} {_evaluated(event)}")
            case events.Downloading():
                self._downloading(event)
            case events.Decoding():
                if self._is_due(event.num_done, event.num_total) and event.num_done < event.num_total:
                    self._write(f"decoding {event.what}: {event.num_done:,} of {event.num_total:,}")
            case events.PhotosDecoded():
                self._write(_decoded(event))
            case events.Waiting():
                self._write(event.message)
            case events.Warned():
                self._write(f"warning: {event.message}")
            case events.RunEnded():
                self._write(_run_ended(event))

    def _place(self, event: events.PhaseStarted | events.EpochEnded | events.PhaseEnded) -> str:
        return f"task {event.task + 1}/{self._num_tasks} {event.phase}"

    def _downloading(self, event: events.Downloading) -> None:
        if not event.num_received:
            self._tenths = 0
            self._write(f"downloading {event.name}")
            return
        # Without an end there are no tenths of the way, only time that passes.
        is_due = self._is_due(event.num_received, event.num_total) if event.num_total else self._is_due(0, 1)
        if is_due or event.num_received == event.num_total:
            self._write(f"downloading {event.name}: {_received(event)}")

    def _is_due(self, num_done: int, num_all: int) -> bool:
        waited = self._clock() - self._last_line
        tenths = 10 * num_done // max(num_all, 1)
        if tenths == self._tenths and waited < SECONDS_BETWEEN_LINES:
            return False
        self._tenths = tenths
        return waited >= SECONDS_APART

    def _write(self, line: str) -> None:
        self._last_line = self._clock()
        try:
            print(line, file=self._stream, flush=True)
        except (OSError, ValueError):  # a pipe whose reader left, a closed file
            return


class TerminalProgress:
    """One live line with task, phase, epochs, loss and time left; evaluations stay on the screen above it.

    An event that it does not know is passed over. Leaving the context, also by Ctrl-C, takes the live line away. A
    terminal that is gone never stops a run.
    """

    def __init__(self, stream: TextIO) -> None:
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
        self._num_tasks = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError, ValueError):
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        with suppress(OSError, ValueError):
            self._tell(event)

    def _tell(self, event: Event) -> None:
        match event:
            case events.RunStarted():
                self._num_tasks = event.num_tasks
                self._print(Text(_run_started(event), style="bold"))
                self._show("preparing")
            case events.RunResumed():
                self._print(Text(_resumed(event, self._num_tasks)))
            case events.TaskStarted():
                self._num_tasks = event.num_tasks
                self._show(f"task {event.task + 1}/{event.num_tasks}")
            case events.PhaseStarted():
                self._num_tasks = event.num_tasks
                self._show(self._place(event), total=event.epochs, count=f"0/{event.epochs}")
            case events.EpochEnded():
                self._show(
                    self._place(event),
                    total=event.epochs,
                    completed=event.epoch + 1,
                    count=f"{event.epoch + 1}/{event.epochs}",
                    losses=_losses(event),
                    left=f"{duration(event.seconds_left)} left",
                )
            case events.PhaseEnded():
                self._show(f"{self._place(event)}: evaluating")
            case events.Evaluated():
                self._print(Text.assemble(f"task {event.task + 1}/{self._num_tasks} ", (_evaluated(event), "green")))
            case events.Downloading():
                done = event.num_received if event.num_total else 0
                amount = _received(event) if event.num_received else ""
                self._show(f"downloading {event.name}", total=event.num_total or 1, completed=done, count=amount)
            case events.Decoding():
                count = f"{event.num_done:,}/{event.num_total:,}"
                self._show(f"decoding {event.what}", total=event.num_total, completed=event.num_done, count=count)
            case events.PhotosDecoded():
                self._print(Text(_decoded(event), style="dim"))
            case events.Waiting():
                self._print(Text(event.message))
                self._show("waiting")
            case events.Warned():
                self._print(Text(f"warning: {event.message}", style="yellow"))
            case events.RunEnded():
                self._print(Text(_run_ended(event), style="bold"))
                self._show("done")

    def _place(self, event: events.PhaseStarted | events.EpochEnded | events.PhaseEnded) -> str:
        return f"task {event.task + 1}/{self._num_tasks} {event.phase}"

    def _show(
        self, text: str, *, total: int = 1, completed: int = 0, count: str = "", losses: str = "", left: str = ""
    ) -> None:
        self._progress.update(
            self._bar, total=total, completed=completed, description=text, count=count, losses=losses, left=left
        )

    def _print(self, text: Text) -> None:
        self._progress.console.print(text, soft_wrap=True)


def _run_started(event: events.RunStarted) -> str:
    return f"{event.method} on {event.scenario}: {event.num_tasks} tasks on {event.device}, in {event.folder}"


def _resumed(event: events.RunResumed, num_tasks: int) -> str:
    """Between two tasks there is no phase yet."""
    phase = f" {event.phase}, epoch {event.epoch + 1}" if event.phase else ""
    return f"resumed at task {event.task + 1}/{num_tasks}{phase}"


def _task_started(event: events.TaskStarted) -> str:
    known = f"{event.num_known} known" if event.num_known else "none known"
    return f"task {event.task + 1}/{event.num_tasks}: {event.num_new} new classes, {known}, {event.num_images:,} images"


def _losses(event: events.EpochEnded) -> str:
    """`loss 1.234 = L_LA 0.900 + L_KD 0.334`, or the total alone where it has one term."""
    terms = {name: value for name, value in event.losses.items() if name != "total"}
    total = event.losses.get("total", sum(terms.values()))
    if len(terms) < 2:
        return f"loss {total:.3f}"
    return f"loss {total:.3f} = " + " + ".join(f"{name} {value:.3f}" for name, value in terms.items())


def _received(event: events.Downloading) -> str:
    """`48.3 of 161.2 MiB`, or `48.3 MiB` where the end is not known."""
    end = f" of {event.num_total / 2**20:.1f}" if event.num_total else ""
    return f"{event.num_received / 2**20:.1f}{end} MiB"


def _decoded(event: events.PhotosDecoded) -> str:
    rate = event.num_photos / max(event.seconds, 1e-3)
    where = {"device": "on the device", "host": "in memory", "disk": "on disk"}[event.place]
    return (
        f"{event.num_photos:,} photos of {event.what}: {event.num_bytes / 2**30:.2f} GiB {where}, "
        f"in {duration(event.seconds)} ({rate:,.0f} a second)"
    )


def _evaluated(event: events.Evaluated) -> str:
    # A group of classes without a test image has no accuracy.
    groups = {"old": event.old_accuracy, "new": event.new_accuracy, "top-5": event.top5}
    known = [f"{name} {value:.2f}" for name, value in groups.items() if value is not None and not math.isnan(value)]
    return f"{event.variant}: {event.accuracy:.2f} % ({', '.join(known)})"


def _run_ended(event: events.RunEnded) -> str:
    return (
        f"average incremental accuracy {event.average_incremental_accuracy:.2f} %, "
        f"final {event.final_accuracy:.2f} %, in {duration(event.seconds)}"
    )
