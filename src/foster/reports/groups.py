"""Which runs belong together: the same recipe with different seeds, and nothing else."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foster.reports.results import RunResult

NOT_RECIPE = frozenset({"seed", "order_seed", "data", "device", "checkpoint_minutes", "engine"})
"""Settings that say which run it is, where its data lie or how fast it computes, but not what is learned how."""

Recipe = tuple[tuple[str, str], ...]
"""Dotted settings and their values as text, sorted."""


@dataclass(frozen=True)
class Group:
    """Runs of one scenario, method, augmentation and recipe.

    `detail` holds what sets it apart from other groups of its method and augmentation, such as `epochs_scale=0.5`, and
    what makes it incomparable: `(unfinished)`, `(on validation images)`.
    """

    method: str
    augmentation: str
    detail: str
    runs: tuple[RunResult, ...]

    @property
    def name(self) -> str:
        return f"{self.method} {self.detail}".rstrip()

    @property
    def averages(self) -> list[float]:
        """Average incremental accuracy of each run."""
        return [run.average_incremental_accuracy for run in self.runs]

    @property
    def boosted_averages(self) -> list[float]:
        """The same of the boosted network, of those runs that have one."""
        return [run.boosted.average_incremental_accuracy for run in self.runs if run.boosted]


def by_scenario(results: Iterable[RunResult]) -> dict[str, list[Group]]:
    """The groups of each scenario, the best mean average first; scenarios in the order of their first run."""
    scenarios: dict[str, dict[tuple[str, str], list[RunResult]]] = {}
    for run in results:
        scenarios.setdefault(run.scenario, {}).setdefault((run.method, run.augmentation), []).append(run)
    return {
        scenario: sorted(
            (group for runs in methods.values() for group in _by_recipe(runs)),
            key=lambda group: -statistics.fmean(group.averages),
        )
        for scenario, methods in scenarios.items()
    }


def _by_recipe(runs: Sequence[RunResult]) -> list[Group]:
    """Split runs of one method and augmentation by their recipe and by what makes them incomparable."""
    recipes: dict[tuple[Recipe, str], list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        recipes.setdefault((_recipe(run), _caveat(run)), []).append(run)
    shared = set.intersection(*(set(recipe) for recipe, _ in recipes))
    return [
        Group(
            method=members[0].method,
            augmentation=members[0].augmentation,
            detail=" ".join(
                [*(f"{key}={value}" for key, value in recipe if (key, value) not in shared), caveat]
            ).strip(),
            runs=tuple(members),
        )
        for (recipe, caveat), members in recipes.items()
    ]


def _recipe(run: RunResult) -> Recipe:
    settings = {key: value for key, value in run.settings.items() if key not in NOT_RECIPE}
    return tuple(sorted((key.removeprefix(f"{run.method}."), value) for key, value in _flat(settings).items()))


def _caveat(run: RunResult) -> str:
    parts = [
        "" if run.finished else "unfinished",
        "" if run.evaluated_on == "test" else f"on {run.evaluated_on} images",
    ]
    text = ", ".join(filter(None, parts))
    return f"({text})" if text else ""


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """`{"foster": {"beta": 1}}` -> `{"foster.beta": "1"}`."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat
