"""`results.json` files -> `RunResult`, the one thing that tables and figures are made from."""

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from foster.errors import DataError
from foster.reports.text import ABSENT, CLASSIFIERS
from foster.system.files import read_plain

FILE_NAME = "results.json"


@dataclass(frozen=True)
class VariantResult:
    """Another way to classify with the same run, such as the boosted network. Accuracies in percent."""

    accuracy: tuple[float, ...]
    average_incremental_accuracy: float


@dataclass(frozen=True)
class RunResult:
    """What one run achieved. Accuracies in percent; `accuracy[t]` is on the `classes_seen[t]` classes after task t."""

    path: Path
    method: str
    scenario: str
    seed: int
    augmentation: str
    settings: dict[str, Any]
    hardware: str
    classes_seen: tuple[int, ...]
    accuracy: tuple[float, ...]
    average_incremental_accuracy: float
    final_accuracy: float
    forgetting: float
    variants: dict[str, VariantResult]
    params: int
    memory_bytes: int
    train_seconds: float
    finished: bool = True
    evaluated_on: str = "test"
    result: str = "head"
    """Which classifier or network the accuracies are of: `head`, `nearest_mean`, `compressed`, `boosted`."""
    new_accuracy: tuple[float, ...] = ()
    """After each task on the classes of that task."""
    old_accuracy: tuple[float | None, ...] = ()
    """After each task on the classes of the tasks before it; None after the first."""

    @property
    def order_seed(self) -> int | None:
        """The seed that the class order is from; None where the order is given."""
        if self.settings.get("class_order"):
            return None
        own = self.settings.get("order_seed")
        return own if isinstance(own, int) else self.seed

    @property
    def seeds(self) -> str:
        """`1993`, or `1993/5` where the class order has a seed of its own."""
        return str(self.seed) if self.order_seed in (None, self.seed) else f"{self.seed}/{self.order_seed}"

    @property
    def classifier(self) -> str:
        return CLASSIFIERS.get(self.result, self.result)

    @property
    def boosted(self) -> VariantResult | None:
        """The network before compression, for a method that has one."""
        return self.variants.get("boosted")


def read_result(path: Path) -> RunResult:
    """The results file at `path`, or a `DataError` that says in one line what is wrong with it."""
    try:
        data = json.loads(read_plain(path, may_be_link=True).decode())
    except OSError as error:
        raise DataError(f"cannot read results file '{path}': {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise DataError(f"'{path}' is damaged or cut short: it is not valid JSON") from None
    if not isinstance(data, dict) or not data.keys() >= {"method", "scenario", "accuracy"}:
        raise DataError(f"'{path}' is not a results file: it lacks 'method', 'scenario' or 'accuracy'")
    try:
        # JSON holds no paths or class counts; everything else is taken as it stands there, extra keys passed over.
        result = _reader().validate_python(
            {**data, "path": path, "hardware": _hardware(data), "classes_seen": _classes_seen(data)}
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        problem = "is missing" if first["type"] == "missing" else f"is wrong: {first['msg'].lower()}"
        raise DataError(f"'{path}' is not a complete results file: '{key}' {problem}") from None
    if not result.accuracy or len(result.accuracy) != len(result.classes_seen):
        raise DataError(
            f"'{path}' is not a complete results file: "
            f"{len(result.accuracy)} accuracies for {len(result.classes_seen)} tasks"
        )
    return result


def find_results(folders: Iterable[Path | str]) -> list[RunResult]:
    """Every run below the folders, in the order of their paths.

    A folder gives each `results.json` in it or below it and, where there is none, its own `*.json` files; a file is
    read as it is.
    """
    paths: dict[Path, Path] = {}
    for folder in map(Path, folders):
        try:
            found = [folder] if folder.is_file() else sorted(_run_files(folder)) or sorted(folder.glob("*.json"))
            is_folder = folder.is_dir()
        except OSError as error:
            # A run that cannot be read is not left out: a table without it would be taken for the whole.
            raise DataError(f"cannot read '{error.filename or folder}': {error.strerror}") from None
        if not found:
            raise DataError(f"no {FILE_NAME} in '{folder}' or below" if is_folder else f"no folder '{folder}'")
        for path in found:
            paths.setdefault(path.resolve(), path)
    return [read_result(path) for path in paths.values()]


def _run_files(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    for place, _, names in os.walk(folder, onerror=refuse):
        if FILE_NAME in names:
            yield Path(place, FILE_NAME)


@cache
def _reader() -> TypeAdapter[RunResult]:
    return TypeAdapter(RunResult)


def _hardware(data: dict[str, Any]) -> str:
    environment = data.get("environment")
    return str(environment.get("device", ABSENT)) if isinstance(environment, dict) else ABSENT


def _classes_seen(data: dict[str, Any]) -> tuple[int, ...]:
    """Cumulative class counts from `tasks`, a list of lists of class names; empty where it is something else."""
    tasks = data.get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(names, list) for names in tasks):
        return ()
    return tuple(itertools.accumulate(len(names) for names in tasks))
