"""`foster watch`: the live state of a run, a learn or a sweep in the terminal, from its events."""

import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from foster.errors import FolderError
from foster.events import RunEnded, RunFailed
from foster.experiment.event_log import EVENTS, FollowedRun, State
from foster.system.counts import ABSENT, duration
from foster.system.locking import writer_of
from foster.system.output import UNBOUNDED, printable

BLOCKS = "▁▂▃▄▅▆▇█"
SECONDS_BETWEEN_POLLS = 0.5
WIDTH = 48
"""Characters of a sparkline."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Numbers as a line of block characters; more than `width` numbers are averaged in equal parts."""
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [len(finite) * index // count for index in range(count + 1)]
    means = [statistics.fmean(finite[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    height = (high - low) / (len(BLOCKS) - 1)
    return "".join(BLOCKS[round((mean - low) / height)] if height else BLOCKS[0] for mean in means)


class RunView(FollowedRun):
    """The view of one run or `learn` on the terminal."""

    def __init__(self, folder: Path, name: str = "", locked: Path | None = None) -> None:
        """`locked` is the folder that the writing process locks, if it is not `folder`."""
        super().__init__(folder)
        self.name = name or folder.absolute().name
        self.state = State.WAITING
        self._locked = locked or folder

    def look(self) -> None:
        """Read the events since the last call."""
        self.read_events()
        if self.progress.end is not None:
            self.state = State.FINISHED if isinstance(self.progress.end, RunEnded) else State.FAILED
        elif self.progress.num_tasks or self.progress.is_learn:
            self.state = State.RUNNING if writer_of(self._locked) else State.STOPPED

    def __rich__(self) -> RenderableType:
        progress = self.progress
        title = f"  {printable(progress.method)} on {printable(progress.scenario)}" if progress.method else ""
        parts: list[RenderableType] = [Text.assemble((printable(self.name), "bold"), f"{title}  {self.state}")]
        if progress.end is None and progress.task is not None and progress.epochs is not None:
            done, count, left = progress.num_epochs_done, progress.epochs, progress.seconds_left
            task = f"task {progress.task + 1}/{progress.num_tasks or '?'} {printable(progress.phase)}"
            row = Table.grid(padding=(0, 2, 0, 0))
            waits = ABSENT if left is None else f"about {duration(left)} left"
            row.add_row(task, ProgressBar(count, done, width=30), f"epoch {done}/{count}", Text(waits, style="cyan"))
            parts.append(row)
        elif progress.end is None and (read := progress.decoding) is not None:
            parts.append(Text(f"reading {printable(read.what)}: {read.num_done:,} of {read.num_total:,} photos"))
        if isinstance(progress.end, RunFailed):
            parts.append(Text(printable(progress.end.message), style="red"))
        lines = Table.grid(padding=(0, 2, 0, 0))
        for term, values in progress.losses.items():
            lines.add_row(Text(printable(term)), f"{values[-1]:.3f}", Text(sparkline(values), style="yellow"))
        for variant, by_task in progress.evaluated.items():
            values = list(by_task.values())
            name = Text(f"accuracy {printable(variant)}")
            lines.add_row(name, f"{values[-1]:.2f} %", Text(sparkline(values), style="green"))
        return Group(*parts, lines)


def views_of(path: Path) -> list[RunView]:
    """The views for a path: a run, all runs of a sweep, or the `learn` that will write a bundle there."""
    if (path / EVENTS).exists():
        return [RunView(path)]
    folders = sorted(folder for folder in path.iterdir() if (folder / EVENTS).exists()) if path.is_dir() else []
    if folders:
        return [RunView(folder) for folder in folders]
    # Imported here because it imports torch, which is not needed to show a run.
    from foster.learner.work_folder import WorkFolder

    learning = WorkFolder.beside(path).checkpoints.folder
    if (learning / EVENTS).exists():
        return [RunView(learning, path.name, learning.parent)]
    raise FolderError(f"'{path}' is no run and no sweep, and nothing is being learned there")


def watch(path: Path, *, is_once: bool = False, console: Console | None = None) -> None:
    """Show the state until all runs are over or the user leaves; once with `is_once` or without a terminal."""
    console = console or Console(highlight=False)
    views = views_of(path)
    for view in views:
        view.look()
    if not console.is_terminal:
        console.width = max(console.width, UNBOUNDED)
    if is_once or not console.is_terminal:
        console.print(_all(views))
        return
    with Live(_all(views), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while any(view.progress.end is None for view in views):
            time.sleep(SECONDS_BETWEEN_POLLS)
            # A sweep starts more runs over time; a finished learn removes its folder.
            known = {view.folder for view in views}
            if any(view.folder.parent == path for view in views):
                views += [view for view in views_of(path) if view.folder not in known]
            elif not views[0].folder.is_dir():
                return
            for view in views:
                view.look()
            live.update(_all(views), refresh=True)


def _all(views: Sequence[RunView]) -> Group:
    """Running runs in full, first; a line for each of the others, with the accuracy of those that are finished."""
    whole = [view for view in views if len(views) == 1 or view.state is State.RUNNING]
    others = Table.grid(padding=(0, 2, 0, 0))
    for view in sorted(views, key=lambda view: (view.state is not State.FAILED, view.name)):
        if view not in whole:
            end = view.progress.end
            reached = f"average {end.average_incremental_accuracy:.2f} %" if isinstance(end, RunEnded) else ""
            others.add_row(*(Text(part, style="dim") for part in (printable(view.name), view.state, reached)))
    return Group(*sorted(whole, key=lambda view: view.name), others)
