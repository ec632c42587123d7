"""Which runs belong together: the same recipe with different seeds, and nothing else."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foster.reports.results import RunResult

NOT_RECIPE = frozenset({"seed", "order_seed", "data", "device", "checkpoint_minutes", "engine"})
"""Settings that say which run it is, where its data lie or how fast it computes, but not what is learned how."""

COMPUTES = ("device", "engine")
"""Settings outside the recipe that may change the last digits of a result."""

Recipe = tuple[tuple[str, str], ...]
"""Dotted settings and their values as text, sorted."""


@dataclass(frozen=True)
class Group:
    """Runs of one scenario, method, augmentation and recipe.

    `detail` holds what sets it apart from other groups of its method and augmentation, such as `epochs_scale=0.5`, and
    what makes it incomparable: `(unfinished)`, `(on validation images)`. No two runs have the same seeds: those that
    differ in how they compute are groups of their own, and of those that differ in nothing the first one counts.
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
    groups = []
    for (recipe, caveat), members in recipes.items():
        for computing, alike in _by_computing(members).items():
            once: dict[tuple[int, str], RunResult] = {}
            for run in alike:
                once.setdefault(_seeds(run), run)
            differing = [f"{key}={value}" for key, value in (*recipe, *computing) if (key, value) not in shared]
            repeats = f"({len(alike) - len(once)} repeated left out)" if len(alike) > len(once) else ""
            detail = " ".join(filter(None, [*differing, caveat, repeats]))
            groups.append(Group(alike[0].method, alike[0].augmentation, detail, tuple(once.values())))
    return groups


def _by_computing(runs: Sequence[RunResult]) -> dict[Recipe, list[RunResult]]:
    """Split runs of one recipe by where and how they computed, but only where they have the same seeds otherwise."""
    if len({_seeds(run) for run in runs}) == len(runs):
        return {(): list(runs)}
    told = [_flat({key: run.settings[key] for key in COMPUTES if key in run.settings}) for run in runs]
    shared = set.intersection(*(set(settings.items()) for settings in told))
    found: dict[Recipe, list[RunResult]] = {}
    for run, settings in zip(runs, told, strict=True):
        found.setdefault(tuple(sorted(set(settings.items()) - shared)), []).append(run)
    return found


def _seeds(run: RunResult) -> tuple[int, str]:
    """What makes two runs of one recipe different draws: the seed, and that of the class order."""
    return run.seed, str(run.settings.get("order_seed"))


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
