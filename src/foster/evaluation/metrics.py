"""Metrics of class-incremental learning, in percent and never rounded; plain numbers in, plain numbers out.

The accuracy matrix is a list of rows: row t has a[t][0], ..., a[t][t], the accuracies after task t on the test
images of each task up to t, with predictions over all classes seen so far.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Evaluation:
    """Accuracies on all classes seen so far, in percent.

    The accuracy on tasks without a test image is None, as is `old_accuracy` in the first task.
    """

    accuracy: float
    top5: float
    old_accuracy: float | None
    new_accuracy: float | None
    per_task: tuple[float | None, ...]


def evaluate(
    ranks: ArrayLike, labels: ArrayLike, task_sizes: Sequence[int], tasks: ArrayLike | None = None
) -> Evaluation:
    """Accuracies from the rank of the true class (0 = predicted) and the label of every test image, both `[N]`.

    Task i has the next `task_sizes[i]` class ids. `tasks` `[N]` has the task of each image; without it, that is the
    task of its class. With C classes in all, and means over test images:

    - accuracy     = 100 mean(rank = 0) over all
    - top5         = 100 mean(rank < min(5, C)) over all
    - old_accuracy = 100 mean(rank = 0) over the tasks before the last, new_accuracy over the last task
    - per_task[i]  = 100 mean(rank = 0) over task i
    """
    rank = np.asarray(ranks)
    ends = np.cumsum(np.asarray(task_sizes, dtype=np.int64))
    is_correct = rank == 0
    task = np.searchsorted(ends, np.asarray(labels), side="right") if tasks is None else np.asarray(tasks)
    last = len(ends) - 1
    return Evaluation(
        accuracy=_percent(is_correct),
        top5=_percent(rank < min(5, ends[-1])),
        old_accuracy=_percent_of_some(is_correct[task < last]),
        new_accuracy=_percent_of_some(is_correct[task == last]),
        per_task=tuple(_percent_of_some(is_correct[task == index]) for index in range(len(ends))),
    )


def average_incremental_accuracy(accuracies: Sequence[float]) -> float:
    """(A_1 + ... + A_T) / T, where A_t is the accuracy on all classes seen after task t, the first included."""
    return statistics.fmean(accuracies)


def forgetting(matrix: Sequence[Sequence[float | None]]) -> float:
    """Mean over the tasks j before the last, T, of max_{j <= t < T} a[t][j] - a[T][j]; 0.0 for a single task.

    Negative if the accuracy on earlier tasks increased. Tasks without test images do not count.
    """
    *earlier, now = matrix
    columns = [[row[task] for row in earlier[task:]] for task in range(len(earlier))]
    best = [max((value for value in column if value is not None), default=None) for column in columns]
    falls = [b - a for b, a in zip(best, now, strict=False) if b is not None and a is not None]
    return statistics.fmean(falls or [0.0])


def _percent(is_correct: NDArray[np.bool_]) -> float:
    return 100.0 * int(np.count_nonzero(is_correct)) / len(is_correct)


def _percent_of_some(is_correct: NDArray[np.bool_]) -> float | None:
    """As `_percent`, or None without images."""
    return _percent(is_correct) if len(is_correct) else None
