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
from foster.experiment.event_log import RunState
from foster.settings.methods import METHOD_SETTINGS
from foster.system.counts import counted, duration, size_text

SECONDS_BETWEEN_LINES = 15.0
"""The seconds between two plain lines about one phase or download."""


@contextmanager
def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Iterator[Listener]:
    """The listener that suits `stream` (standard error by default): live on a terminal, else plain lines.

    With `quiet` it shows warnings alone.
    """
    stream = sys.stderr if stream is None else stream
    if quiet:
        lines = LineProgress(stream)
        yield lambda event: lines(event) if isinstance(event, events.Warned) else None
    elif stream.isatty() and not Console(file=stream).is_dumb_terminal:
        with TerminalProgress(stream) as listener:
            yield listener
    else:
        yield LineProgress(stream)  # every line is flushed when it is written


class _Progress:
    """Shows events: lines that stay, and, in subclasses, the current progress.

    Unknown events are ignored. A closed stream does not stop a run.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = RunState()
        self._clock = clock
        self._reading, self._reading_since = events.Decoding("", 0, 0), 0.0

    def __call__(self, event: Event) -> None:
        self._state.add(event)
        with suppress(OSError, ValueError):  # a pipe whose reader left, a closed file
            for line, style in lasting_lines(event, self._state):
                self._say(line, style)
            self._follow(event)

    def _left(self, event: events.Decoding) -> str:
        """The time left of reading photos, by the pace since the first event about them; empty at the first."""
        first = self._reading
        if (event.what, event.num_total) != (first.what, first.num_total) or event.num_done <= first.num_done:
            self._reading, self._reading_since = event, self._clock()
            return ""
        pace = (self._clock() - self._reading_since) / (event.num_done - first.num_done)
        return f"{duration(pace * (event.num_total - event.num_done))} left"

    def _say(self, line: str, style: str = "") -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def _follow(self, event: Event) -> None:
        """Show the current progress."""
        raise NotImplementedError


class LineProgress(_Progress):
    """Plain lines: start and end of each phase, progress from time to time, and every evaluation."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._last_line = 0.0

    def _follow(self, event: Event) -> None:
        match event:
            case events.TaskStarted() if not self._state.is_learn:  # a learn has one task, and has shown its plan
                known = f"{event.num_known} known" if event.num_known else "none known"
                what = f"{counted(event.num_new, 'new class')}, {known}, {counted(event.num_images, 'image')}"
                self._say(f"task {event.task + 1}/{event.num_tasks}: {what}")
            case events.PhaseStarted():
                length = f"{counted(event.epochs, 'epoch')} of {counted(event.steps, 'step')}"
                self._say(f"{where_text(event, self._state)}: {length}")
            case events.EpochEnded():
                # The last epoch has no line: the end of the phase has one.
                if event.epoch + 1 < event.epochs and self._is_due():
                    done = f"{event.epoch + 1}/{event.epochs}, {losses_text(event, self._state)}"
                    left = duration(event.seconds_left)
                    self._say(f"{where_text(event, self._state)}: epoch {done}, {left} left")
            case events.PhaseEnded():
                self._say(f"{where_text(event, self._state)}: done in {duration(event.seconds)}")
            case events.Downloading():
                if not event.num_received:
                    self._say(f"downloading {event.name}")
                elif self._is_due() or event.num_received == event.num_total:
                    self._say(f"downloading {event.name}: {received_text(event)}")
            case events.Decoding():
                left = self._left(event)
                if event.num_done < event.num_total and self._is_due():
                    done = f"{event.num_done:,} of {event.num_total:,}"
                    self._say(f"reading {event.what}: {f'{done}, {left}' if left else done}")

    def _is_due(self) -> bool:
        return self._clock() - self._last_line >= SECONDS_BETWEEN_LINES

    def _say(self, line: str, style: str = "") -> None:
        self._last_line = self._clock()
        print(line, file=self._stream, flush=True)


class TerminalProgress(_Progress):
    """One live line with task, phase, epochs, loss and time left; evaluations stay on the screen above it."""

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
            # Output to this terminal must not break the live line; output to a file must stay in the file.
            redirect_stdout=sys.stdout.isatty(),
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
                self._show("preparing" if self._state.is_learn else f"task {event.task + 1}/{event.num_tasks}")
            case events.PhaseStarted():
                self._show(where_text(event, self._state), total=event.epochs, count=f"0/{event.epochs}")
            case events.EpochEnded():
                self._show(
                    where_text(event, self._state),
                    total=event.epochs,
                    completed=event.epoch + 1,
                    count=f"{event.epoch + 1}/{event.epochs}",
                    losses=losses_text(event, self._state),
                    left=f"{duration(event.seconds_left)} left",
                )
            case events.PhaseEnded():
                self._show(f"{where_text(event, self._state)}: evaluating")
            case events.Downloading():
                done = event.num_received if event.num_total else 0
                amount = received_text(event) if event.num_received else ""
                self._show(f"downloading {event.name}", total=event.num_total or 1, completed=done, count=amount)
            case events.Decoding():
                count = f"{event.num_done:,}/{event.num_total:,}"
                total, done, left = event.num_total, event.num_done, self._left(event)
                self._show(f"reading {event.what}", total=total, completed=done, count=count, left=left)
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


def in_plain_words(what: str) -> str:
    """The name of a phase or variant of a `learn` in plain words."""
    words = {"learn": "learning"}
    for method in METHOD_SETTINGS.values():
        words |= method.plain_words
    name = what.removesuffix(" again")
    return words.get(name, name) + what.removeprefix(name)


def lasting_lines(event: Event, state: RunState) -> list[tuple[str, str]]:
    """The lines of an event that stay on the screen, each with its style."""
    match event:
        case events.RunStarted():
            folder = f", in {event.folder}" if event.folder else ""
            tasks = counted(event.num_tasks, "task")
            return [(f"{event.method} on {event.scenario}: {tasks} on {event.device}{folder}", "bold")]
        case events.RunResumed():
            return [(resumed_text(event, state), "")]
        case events.LearnPlanned():
            return [(line, "") for line in event.lines]
        case events.Evaluated():
            return [(evaluated_text(event, state), "green")]
        case events.PhotosDecoded():
            return [(decoded_text(event), "dim")]
        case events.Warned():
            return [(f"warning: {event.message}", "yellow")]
        case events.RunEnded():
            average = f"average incremental accuracy {event.average_incremental_accuracy:.2f} %"
            return [(f"{average}, final {event.final_accuracy:.2f} %, in {duration(event.seconds)}", "bold")]
    return []


def resumed_text(event: events.RunResumed, state: RunState) -> str:
    """Where a resumed run continues; between two tasks there is no phase."""
    phase = in_plain_words(event.phase) if state.is_learn else event.phase
    reached = f"after {phase}" if event.is_phase_done else f"{phase}, epoch {event.epoch + 1}" if phase else ""
    if state.is_learn:
        return f"resumed: {reached}"
    return f"resumed at task {event.task + 1}/{state.num_tasks} {reached}".rstrip()


def losses_text(event: events.EpochEnded, state: RunState) -> str:
    """`loss 1.234 = L_LA 0.900 + L_KD 0.334`, or the total alone if it has one term."""
    terms = {name: value for name, value in event.losses.items() if name != "total"}
    total = event.losses.get("total", sum(terms.values()))
    if len(terms) < 2 or state.is_learn:
        return f"loss {total:.3f}"
    return f"loss {total:.3f} = " + " + ".join(f"{name} {value:.3f}" for name, value in terms.items())


def received_text(event: events.Downloading) -> str:
    """`48.3 of 161.2 MiB`, or `48.3 MiB` if the total is not known."""
    end = f" of {event.num_total / 2**20:.1f}" if event.num_total else ""
    return f"{event.num_received / 2**20:.1f}{end} MiB"


def decoded_text(event: events.PhotosDecoded) -> str:
    rate = event.num_photos / max(event.seconds, 1e-3)
    where = {"device": "on the device", "host": "in memory", "disk": "on disk"}[event.place]
    time = f"in {duration(event.seconds)} ({rate:,.0f} a second)"
    return f"{event.num_photos:,} photos of {event.what}: {size_text(event.num_bytes)} {where}, {time}"


def where_text(
    event: events.PhaseStarted | events.EpochEnded | events.PhaseEnded | events.Evaluated, state: RunState
) -> str:
    """Task and phase; a `learn` has one task, and its phases are named in plain words."""
    what = event.variant if isinstance(event, events.Evaluated) else event.phase
    if not state.is_learn:
        return f"task {event.task + 1}/{state.num_tasks} {what}"
    is_first = isinstance(event, events.Evaluated) and event.task == 0  # a first learn has one variant
    return "learned" if is_first else in_plain_words(what)


def evaluated_text(event: events.Evaluated, state: RunState) -> str:
    # A group of classes without a test image has no accuracy.
    is_learn = state.is_learn
    names = ("known", "new", "") if is_learn else ("old", "new", "top-5")
    groups = zip(names, (event.old_accuracy, event.new_accuracy, event.top5), strict=True)
    known = [f"{name} {value:.2f}" for name, value in groups if name and value is not None]
    details = f" ({', '.join(known)})" if known and not (is_learn and len(known) == 1) else ""
    of_what = " of held-out images" if is_learn else ""
    return f"{where_text(event, state)}: {event.accuracy:.2f} %{of_what}{details}"
