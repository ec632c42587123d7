"""Results files like those of real runs, for tables and figures."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from foster.experiment.results import RunResult, read_result

WriteRun = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes a results file like that of a real run; keywords replace or add top-level keys."""

    def write(
        name: str,
        accuracy: Sequence[float] = (90.0, 60.0),
        task_sizes: Sequence[int] = (2, 2),
        boosted: Sequence[float] | None = None,
        **changes: Any,
    ) -> Path:
        def metrics(values: Sequence[float]) -> dict[str, Any]:
            return {"accuracy": list(values), "average_incremental_accuracy": sum(values) / len(values)}

        results = {
            "method": "foster",
            "scenario": "digits-b0-inc2",
            "seed": 1993,
            "augmentation": "plain",
            "finished": True,
            "result": "compressed",
            "evaluated_on": "test",
            **metrics(accuracy),
            "new_accuracy": list(accuracy),
            "old_accuracy": [None, *accuracy[1:]],
            "accuracy_matrix": [[value] * (task + 1) for task, value in enumerate(accuracy)],
            "final_accuracy": accuracy[-1],
            "forgetting": 12.5,
            "variants": {"nearest_mean": metrics(accuracy), **({"boosted": metrics(boosted)} if boosted else {})},
            "params": 470_004,
            "memory_bytes": 6_144_000,
            "train_seconds": 724.0,
            "tasks": [[f"task {task} class {k}" for k in range(size)] for task, size in enumerate(task_sizes)],
            "classes": [f"task {task} class {k}" for task, size in enumerate(task_sizes) for k in range(size)],
            "settings": {"seed": 1993, "foster": {"beta_compress": 0.97}},
            "environment": {"device": "NVIDIA H200", "torch": "2.13.0"},
            **changes,
        }
        path = tmp_path / name / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results), encoding="utf-8")
        return path

    return write


def three_seeds(write_run: WriteRun, order: int | None = 1993) -> list[RunResult]:
    """Averages 75, 76, 77 and finals 60, 62, 64: sample standard deviations 1 and 2."""
    return [
        read_result(
            write_run(
                f"seed{seed}-{order}",
                seed=seed,
                accuracy=(90.0, last),
                boosted=(90.0, last + 2),
                settings={"order_seed": order},
            )
        )
        for seed, last in ((1, 60.0), (2, 62.0), (3, 64.0))
    ]
