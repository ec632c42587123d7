"""The runs of a sweep as lines on standard error, from their events."""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from foster.events import RunEnded
from foster.experiment.event_log import FollowedRun, State
from foster.system.counts import ABSENT, counted


@dataclass
class RunStatus(FollowedRun):
    """One run of a sweep."""

    slot: str = ""
    message: str = ""
    is_continued: bool = False

    @property
    def accuracy(self) -> str:
        """Accuracy on all classes seen after the last task that was learned."""
        return ABSENT if self.told.accuracy is None else f"{self.told.accuracy:.2f}"

    @property
    def outcome(self) -> str:
        """How the run started or ended, in a few words."""
        if self.state is State.RUNNING:
            return f"{'continued' if self.is_continued else 'started'} on {self.slot}"
        if self.state is State.FINISHED and isinstance(self.told.end, RunEnded):
            return f"finished, average incremental accuracy {self.told.end.average_incremental_accuracy:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)


class Display:
    """Writes a line when a run starts, ends or has learned a task. A closed stream does not stop a sweep.

    `foster watch` shows the runs live.
    """

    def __init__(self) -> None:
        self._shown: dict[str, tuple[State, str]] = {}

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
            print(line, file=sys.stderr, flush=True)


def counts(runs: Sequence[RunStatus]) -> str:
    """`6 runs: 2 running, 1 finished, 3 waiting`."""
    num_in = Counter(run.state for run in runs)
    parts = ", ".join(f"{num_in[state]} {state}" for state in State if num_in[state])
    return f"{counted(len(runs), 'run')}: {parts}"
