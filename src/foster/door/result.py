"""What a run found out, as a researcher asks for it: numbers, the network, a figure."""

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from foster.errors import DataError
from foster.reports.results import FILE_NAME, RunResult, find_results
from foster.system.files import read_plain, user_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from foster.networks.network import Network


class Result:
    """The results of one run. Accuracies are in percent, on the test images of all classes seen so far.

    `accuracy[t]` is that after task t, `accuracy_matrix[t][k]` after task t on the classes of task k.
    """

    def __init__(self, run: RunResult, data: dict[str, Any], find_network: Callable[[], "Network"]) -> None:
        self._run = run
        self._data = data
        self._find_network = find_network

    @classmethod
    def read(cls, run: RunResult, find_network: Callable[[], "Network"] | None = None) -> Self:
        """Of the file that `run` was read from; its network is restored from the folder when it is asked for."""
        data: dict[str, Any] = json.loads(read_plain(run.path, may_be_link=True))
        return cls(run, data, find_network or (lambda: _restored(run.path)))

    @property
    def method(self) -> str:
        return self._run.method

    @property
    def scenario(self) -> str:
        return self._run.scenario

    @property
    def seed(self) -> int:
        return self._run.seed

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decided what the run did, as in its settings file, without paths."""
        return dict(self._run.settings)

    @property
    def is_finished(self) -> bool:
        """False for a run that is under way or was interrupted: its results are those of the tasks so far."""
        return self._run.finished

    @property
    def accuracy(self) -> list[float]:
        """After each task."""
        return list(self._run.accuracy)

    @property
    def accuracy_matrix(self) -> list[list[float]]:
        """Row t, after task t, holds the accuracy on each task up to t."""
        return [list(row) for row in self._data["accuracy_matrix"]]

    @property
    def average_incremental_accuracy(self) -> float:
        """The mean of `accuracy` over all tasks, the first included."""
        return self._run.average_incremental_accuracy

    @property
    def final_accuracy(self) -> float:
        return self._run.final_accuracy

    @property
    def forgetting(self) -> float:
        """How far each earlier task fell from its best to its last accuracy, on average, in points."""
        return self._run.forgetting

    @property
    def train_seconds(self) -> float:
        return self._run.train_seconds

    @cached_property
    def network(self) -> "Network":
        """The network after the last task, in eval mode: normalised images `[N, 3, H, W]` to logits and features.

        That of a run which was read from a folder comes from its last checkpoint, on the CPU.
        """
        network = self._find_network()
        network.eval()
        return network

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data: what `results.json` holds."""
        data: dict[str, Any] = json.loads(json.dumps(self._data))
        return data

    def figure(self, title: str | None = None) -> "Figure":
        """Accuracy on all classes seen against their number, as a matplotlib figure; a notebook shows it."""
        return Results([self]).figure(title)

    def __repr__(self) -> str:
        tasks = f"{len(self.accuracy)} tasks{'' if self.is_finished else ' so far'}"
        return (
            f"<Result {self.scenario}, {self.method}, seed {self.seed}: {tasks}, average incremental accuracy "
            f"{self.average_incremental_accuracy:.2f} %, final {self.final_accuracy:.2f} %, "
            f"forgetting {self.forgetting:.2f}>"
        )


class Results(list[Result]):
    """Several results, which can be looked at together."""

    def figure(self, title: str | None = None) -> "Figure":
        """All of them in one matplotlib figure: a panel a scenario, a curve a method; runs that differ by their seed
        alone are a mean with a band."""
        from foster.reports.curves import accuracy_figure

        return accuracy_figure([result._run for result in self], title)

    def table(self) -> str:
        """Accuracy after each task, a row a method, as text."""
        from rich.console import Console

        from foster.reports.tables import accuracy_table

        window = Console(width=120, color_system=None, force_terminal=False)
        with window.capture() as capture:
            window.print(accuracy_table([result._run for result in self]))
        return capture.get().rstrip()

    def __repr__(self) -> str:
        return self.table() if self else "[]"


def load_results(*folders: str | Path) -> Results:
    """The results of every run in the folders or below; a results file is taken as it is.

    `foster.load_results("runs")` finds all runs in `runs/`, `foster.load_results("runs/wa", "runs/der")` those two.
    """
    return Results(_read(find_results(user_path(folder) for folder in folders or ("runs",))))


def _read(runs: Iterable[RunResult]) -> list[Result]:
    return [Result.read(run) for run in runs]


def _restored(path: Path) -> "Network":
    """The network of the finished run that wrote this results file."""
    from foster.experiment.restore import last_network

    if path.name != FILE_NAME:
        raise DataError(f"'{path}' is a results file alone: the network of a run lies in its folder")
    return last_network(path.parent)
