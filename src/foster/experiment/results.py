"""Read `results.json` files: the source of all tables and figures."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

from pydantic import Field, TypeAdapter

from foster.errors import DataError
from foster.settings.experiment import with_last_batches
from foster.system.counts import ABSENT
from foster.system.documents import Count, Percent, Seconds, Words, checked, read_json
from foster.system.output import printable

RESULTS = "results.json"
BESIDE_A_RUN = frozenset({".log", ".toml"})
"""Endings of files that a sweep writes beside a run's folder, under its name."""
MAX_RESULTS_BYTES, MAX_TASKS, MAX_NAME = 64 * 2**20, 10_000, 1000

CLASSIFIERS = {"head": "head", "nearest_mean": "nearest mean"}
"""The classifiers with which every method is evaluated, as tables name them."""

Name = Annotated[Words, Field(max_length=MAX_NAME)]
"""The memory that a figure takes grows with the square of a name's length."""

Change = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]


@dataclass(frozen=True)
class VariantResult:
    """Another network or classifier that the run evaluated. Accuracies in percent.

    One that was not evaluated after every task has None for those tasks, and no average.
    """

    accuracy: tuple[Percent | None, ...]
    average_incremental_accuracy: Percent | None


@dataclass(frozen=True)
class RunResult:
    """The results of one run. Accuracies in percent; `accuracy[t]` is on the `classes_seen[t]` classes after task t."""

    path: Path
    method: Name
    scenario: Name
    seed: Count
    augmentation: Words
    settings: dict[str, Any]
    classes_seen: tuple[Count, ...]
    accuracy: Annotated[list[Percent], Field(min_length=1, max_length=MAX_TASKS)]
    average_incremental_accuracy: Percent
    final_accuracy: Percent
    forgetting: Change
    variants: dict[Name, VariantResult]
    params: Count
    memory_bytes: Count
    train_seconds: Seconds
    finished: bool
    evaluated_on: Words
    result: Name
    """The variant whose accuracies these are: a classifier (`head`, `nearest_mean`), or a name of the method's own."""
    new_accuracy: tuple[Percent | None, ...]
    """After each task, on the test images of that task; None where it has none."""
    old_accuracy: tuple[Percent | None, ...]
    """After each task on the test images of the tasks before it; None after the first."""
    accuracy_matrix: list[list[Percent | None]]
    """Row t: after task t on the test images of each task up to t; None for a task without test images."""
    classes: tuple[Annotated[str, Field(max_length=MAX_NAME)], ...]
    """All names in order of arrival."""
    environment: dict[str, Any]
    content: dict[str, Any]
    """The whole content of the file."""

    @property
    def counted_by(self) -> str:
        """The unit of the horizontal axis: the given tasks of a dataset may have no new classes."""
        return "tasks learned" if self.settings.get("tasks") == "given" else "classes seen"

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of classes seen after each task, or of tasks learned (`counted_by`)."""
        is_by_class = self.counted_by == "classes seen"
        return self.classes_seen if is_by_class else tuple(range(1, len(self.accuracy) + 1))

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in itertools.pairwise((0, *self.classes_seen)))

    def __post_init__(self) -> None:
        rows = (self.accuracy, self.new_accuracy, self.old_accuracy, *(one.accuracy for one in self.variants.values()))
        if any(len(row) != len(self.classes_seen) for row in rows):
            raise ValueError(f"{len(self.accuracy)} accuracies for {len(self.classes_seen)} tasks")
        if len(self.classes) < self.classes_seen[-1]:
            raise ValueError(f"{len(self.classes)} class names for {self.classes_seen[-1]} classes")
        if [*map(len, self.accuracy_matrix)] != [*range(1, len(self.accuracy) + 1)]:
            raise ValueError("accuracy_matrix: row t must have an accuracy for each task up to t")

    @property
    def hardware(self) -> str:
        return printable(str(self.environment.get("device", ABSENT)))

    @property
    def recipe(self) -> str:
        """The name of the recipe; empty for none."""
        return printable(str(self.settings.get("recipe", ""))[:MAX_NAME])

    @property
    def order_seed(self) -> int | None:
        """The seed that the class order is from; None where the order, or the tasks themselves, are given."""
        if self.settings.get("class_order") or self.settings.get("tasks") == "given":
            return None
        order = self.settings.get("order_seed")
        return order if isinstance(order, int) else self.seed

    @property
    def order(self) -> int | str | None:
        """The class order: its seed, or a name made from the names of the classes where they are given; None where the
        tasks themselves are given."""
        names = self.settings.get("class_order")
        return f"given {crc32(repr(names).encode()) & 0xFFFF:04x}" if names else self.order_seed

    @property
    def seeds(self) -> str:
        """`1993`, or `1993/5` where the class order has a seed of its own, or a name."""
        return str(self.seed) if self.order in (None, self.seed) else f"{self.seed}/{self.order}"

    @property
    def classifier(self) -> str:
        """The classifier of the result in words: `head` or `nearest mean`.

        Where the result has another name, the network's other classifier is the variant `head` or `nearest_mean`."""
        named = self.result if self.result in CLASSIFIERS else "nearest_mean" if "head" in self.variants else "head"
        return CLASSIFIERS[named]

    @property
    def shown_variants(self) -> dict[str, VariantResult]:
        """The variants that the method itself names. Every network is also evaluated by its head and by nearest means;
        those are in `variants` only."""
        usual = {name for name in self.variants if name in CLASSIFIERS or name.endswith("_nearest_mean")}
        return {name: one for name, one in self.variants.items() if name not in usual}


READER = TypeAdapter(RunResult)


def read_content(path: Path) -> dict[str, Any]:
    """The content of a results file, whatever its keys; empty if it is no table."""
    content = read_json(path, MAX_RESULTS_BYTES)
    return content if isinstance(content, dict) else {}


def read_result(path: Path) -> RunResult:
    """The results file at `path`, or a `DataError` that says in one line what is wrong with it."""
    data = read_content(path)
    if not data.keys() >= {"method", "scenario", "accuracy"}:
        raise DataError(f"'{path}' is not a results file: it lacks 'method', 'scenario' or 'accuracy'")
    # JSON holds no paths or class counts; everything else is taken from the file, and extra keys are ignored.
    facts = {**data, "path": path, "classes_seen": _classes_seen(data), "content": data}
    if isinstance(settings := data.get("settings"), dict):
        facts["settings"] = with_last_batches(settings)
    return checked(facts, READER, path)


def find_results(folders: Iterable[Path | str]) -> list[RunResult]:
    """Every run below the folders, in the order of their paths.

    A folder gives each `results.json` in it or below it and, where there is none, its own `*.json` files; a file is
    read as it is.
    """
    paths: list[Path] = []
    for folder in without_notes(map(Path, folders)):
        files = [folder] if folder.is_file() else sorted(folder.rglob(RESULTS)) or sorted(folder.glob("*.json"))
        if not files:
            missing = f"no {RESULTS} in '{folder}' or below" if folder.is_dir() else f"no file or folder '{folder}'"
            raise DataError(missing)
        paths += files
    return [read_result(path) for path in dict.fromkeys(paths)]


def without_notes(paths: Iterable[Path]) -> list[Path]:
    """Leave out the logs and settings files that a sweep writes beside its run folders: `sweep/*` in a shell matches
    them, too. If there are no other paths, all are returned."""
    given = list(paths)
    return [path for path in given if path.suffix not in BESIDE_A_RUN or not path.with_suffix("").is_dir()] or given


def _classes_seen(data: dict[str, Any]) -> tuple[int, ...]:
    """Cumulative class counts from `tasks`, a list of lists of class names; empty where it is invalid."""
    tasks = data.get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(names, list) for names in tasks):
        return ()
    return tuple(itertools.accumulate(len(names) for names in tasks))
