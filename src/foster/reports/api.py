"""`foster.load_results`, and the results that it and `foster.run` return."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from foster.errors import DataError, suggestion
from foster.experiment.results import RunResult, find_results
from foster.system.counts import counted
from foster.system.files import user_path
from foster.system.output import plain_text

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from torch import nn

    from foster.networks.network import Network


@dataclass(frozen=True, repr=False, eq=False)
class Result(RunResult):
    """The results of one run. Accuracies are in percent, on the test images of all classes seen so far.

    - `accuracy[t]`: after task t, on `classes_seen[t]` classes
    - `accuracy_matrix[t][k]`: after task t, on the test images of task k
    - `average_incremental_accuracy`: the mean of `accuracy` over all tasks, the first included
    - `forgetting`: how far each earlier task fell from its best to its last accuracy, on average, in points
    - `new_accuracy[t]`, `old_accuracy[t]`: after task t, on the test images of task t and of those before it
    - `variants`: `accuracy` and `average_incremental_accuracy` of other networks and classifiers that were evaluated;
      `to_dict()["variants"]` has all their numbers
    - `params`, `memory_bytes`, `train_seconds`: numbers of parameters, of bytes kept between tasks, and of seconds
    - `finished`: False for a run in progress or interrupted, whose results are those of the tasks so far
    - `settings`: all settings of the run, as in its settings file, without paths
    """

    _network: "Network | None" = None

    @classmethod
    def of(cls, run: RunResult, network: "Network | None" = None) -> Self:
        """The result of the run; without a `network`, it is loaded from the folder when it is needed."""
        return cls(**vars(run), _network=network)

    @cached_property
    def network(self) -> "Network":
        """The network after the last task, in eval mode: normalised images `[N, 3, H, W]` to logits and features.

        If the result was read from a folder, the network is loaded from the last checkpoint, on the CPU.
        """
        if self._network is not None:
            return self._network.eval()
        from foster.reports.archive import RunArchive

        if not self.finished:
            # Its checkpoints may be from the middle of a task, and another process may be writing them.
            raise DataError(f"the run in '{self.path.parent}' is not finished; its network is available at its end")
        return RunArchive(self).network().eval()

    def network_after(self, task: int, variant: str | None = None) -> "nn.Module":
        """The network of the result after a task, counted from 0, or of another variant, such as FOSTER's "boosted".

        The run must have the setting `keep_networks=true`, which keeps these networks in its folder.
        """
        from foster.reports.archive import RunArchive

        return RunArchive(self).network_after(task, variant).eval()

    def predictions_after(self, task: int, variant: str | None = None) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """The true and the predicted class ids `[N]` of all test images so far after a task, counted from 0.

        They are positions in `classes`, so that `confusion_matrix(*result.predictions_after(3))` of scikit-learn is the
        confusion matrix after the fourth task. `variant` is one of `variants`; by default it is the result. The run
        must have a folder.
        """
        from foster.reports.archive import RunArchive

        kept = RunArchive(self).predictions_after(task)
        variant = self.result if variant is None else variant
        if variant not in kept.by_variant:
            found = suggestion(variant, kept.by_variant)
            raise DataError(f"no predictions of '{variant}' after task {task + 1} in '{self.path.parent}'{found}")
        return kept.labels, kept.by_variant[variant]

    def to_dict(self) -> dict[str, Any]:
        """The content of `results.json`."""
        return deepcopy(self.content)

    def figure(self, title: str | None = None) -> "Figure":
        """Accuracy on all classes seen against their number, as a matplotlib figure; a notebook shows it."""
        return Results([self]).figure(title)

    def __repr__(self) -> str:
        tasks = f"{counted(len(self.accuracy), 'task')}{'' if self.finished else ' so far'}"
        return (
            f"<Result {self.scenario}, {self.method}, seed {self.seed}: {tasks}, average incremental accuracy "
            f"{self.average_incremental_accuracy:.2f} %, final {self.final_accuracy:.2f} %, "
            f"forgetting {self.forgetting:.2f}>"
        )


class Results(list[Result]):
    """A list of results, with one figure and one table of all; a notebook shows the table.

    ```python
    results = foster.Results(foster.run("digits", method=method) for method in ("replay", "foster"))
    results.figure().savefig("curves.png")
    ```
    """

    def figure(self, title: str | None = None) -> "Figure":
        """Accuracy curves of all results in one matplotlib figure: a panel for each scenario, augmentation and class
        order, a curve for each method. Runs that differ in their seed alone become a mean with a band."""
        from foster.reports.curves import accuracy_figure

        return accuracy_figure(self, title)

    def table(self) -> str:
        """Accuracy after each task as text, with a row for each run and for each other variant of its method."""
        from foster.reports.tables import accuracy_grids, shown

        return plain_text(shown(accuracy_grids(self))).rstrip()

    def records(self) -> list[dict[str, Any]]:
        """A flat dict for each run: scenario, method and seed, its numbers, its accuracy after each task, and each
        setting that differs from the preset in some run, by dotted key, such as `replay.later.learning_rate`.

        `pandas.DataFrame(results.records())` is a table of them.
        """
        from foster.reports.tables import run_records

        return run_records(self)

    def __repr__(self) -> str:
        return self.table() if self else "[]"


def load_results(*folders: str | Path) -> Results:
    """The results of all runs in or below the folders; a path may also be a results file.

    `foster.load_results("runs")` finds all runs in `runs/`, `foster.load_results("runs/wa", "runs/der")` those two.
    """
    return Results(map(Result.of, find_results(user_path(folder) for folder in folders or ("runs",))))
