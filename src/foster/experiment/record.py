"""The evaluations of a run and the metrics that are computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from foster.evaluation.metrics import Evaluation, average_incremental_accuracy, forgetting


@dataclass
class Record:
    """The evaluations of a run so far: for each variant, one after each task."""

    result_name: str
    evaluations: dict[str, list[Evaluation]] = field(default_factory=dict)
    task_seconds: list[float] = field(default_factory=list)
    params: list[int] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)

    def is_evaluated(self, variant: str, task: int) -> bool:
        """Whether the variant was evaluated after this task."""
        return any(len(row.per_task) == task + 1 for row in self.evaluations.get(variant, ()))

    def add(self, variant: str, evaluation: Evaluation) -> None:
        self.evaluations.setdefault(variant, []).append(evaluation)

    def close_task(self, seconds: float, params: int, memory_bytes: int) -> None:
        self.task_seconds.append(seconds)
        self.params.append(params)
        self.memory_bytes.append(memory_bytes)

    @property
    def num_tasks(self) -> int:
        """How many tasks are learned and evaluated."""
        return len(self.task_seconds)

    @property
    def result(self) -> list[Evaluation]:
        """The evaluations of the variant that is the result."""
        return self.evaluations[self.result_name]

    def summary(self) -> dict[str, Any]:
        """The metrics of the result at the top, and those of every other variant under its name."""
        others = {name: rows for name, rows in self.evaluations.items() if name != self.result_name}
        variants = {name: self._metrics_of_variant(rows) for name, rows in others.items()}
        return {
            "result": self.result_name,
            **metrics(self.result),
            "variants": variants,
            "params": self.params[-1],
            "params_by_task": self.params,
            "memory_bytes": self.memory_bytes[-1],
            "train_seconds": sum(self.task_seconds),
            "task_seconds": self.task_seconds,
        }

    def _metrics_of_variant(self, rows: Sequence[Evaluation]) -> dict[str, Any]:
        """All metrics; of a variant that was evaluated after some tasks only, the accuracies without an average."""
        if len(rows) == len(self.result):
            return metrics(rows)
        by_task = {len(row.per_task): row.accuracy for row in rows}
        accuracy = [by_task.get(task) for task in range(1, len(self.result) + 1)]
        return {"accuracy": accuracy, "average_incremental_accuracy": None}

    def state(self) -> dict[str, Any]:
        """Plain data from which `from_state` makes the same record."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Record":
        """The record; a ValueError where `state` has other types."""
        return TypeAdapter(cls).validate_python(state)


def metrics(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """All metrics of one variant, in percent, from its evaluations after each task."""
    matrix = [list(each.per_task) for each in evaluations]
    accuracy = [each.accuracy for each in evaluations]
    return {
        "accuracy": accuracy,
        "top5": [each.top5 for each in evaluations],
        "old_accuracy": [each.old_accuracy for each in evaluations],
        "new_accuracy": [each.new_accuracy for each in evaluations],
        "accuracy_matrix": matrix,
        "average_incremental_accuracy": average_incremental_accuracy(accuracy),
        "final_accuracy": accuracy[-1],
        "forgetting": forgetting(matrix),
    }
