"""Groups of runs that differ in their seed alone."""

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foster.reports.results import RunResult
from foster.settings.base import FREE_SETTINGS, MEMORY_KEYS, flat
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.toml import laid_over
from foster.system.counts import counted
from foster.system.output import printable

NOT_RECIPE = frozenset({*FREE_SETTINGS, "seed", "order_seed", "recipe"})
"""Settings that do not change what is learned: seeds, names, paths, and how and where a run computes."""

IN_SCENARIO = frozenset({"dataset", "base_classes", "increment", "task_sizes", "tasks"})
"""Settings that the scenario's name contains."""

Recipe = tuple[tuple[str, str], ...]
"""Dotted settings and their values as text, sorted."""


@dataclass(frozen=True)
class Group:
    """Runs of one scenario, method, augmentation and recipe, no two with the same seeds.

    Of runs that differ only in where and how they were computed, the first one counts. `detail` tells the group from
    others in a table:

    - the name of its recipe
    - settings in which groups of its method differ (`temperature=3`), or methods of its scenario (`memory_total=2000`),
      but for the values that more than half of them have
    - what makes it incomparable: `(unfinished, 2 tasks)`, `(on validation images)`
    """

    method: str
    augmentation: str
    detail: str
    runs: tuple[RunResult, ...]

    @property
    def name(self) -> str:
        return f"{self.method} {self.detail}".rstrip()

    @property
    def recipe(self) -> str:
        """The name of the recipe; empty for none."""
        return self.runs[0].recipe

    @property
    def averages(self) -> list[float]:
        """Average incremental accuracy of each run."""
        return [run.average_incremental_accuracy for run in self.runs]

    @property
    def is_finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def order(self) -> int | None:
        """The seed of the class order that all runs share; None where they differ, or where the order is given."""
        orders = {run.order_seed for run in self.runs}
        return orders.pop() if len(orders) == 1 else None

    @property
    def variants(self) -> list[str]:
        """The names of the method's own variants beside the result."""
        return list(dict.fromkeys(name for run in self.runs for name in run.shown_variants))

    def variant_averages(self, variant: str) -> list[float]:
        """Average incremental accuracy of a variant, of those runs that have one."""
        found = [run.variants[variant].average_incremental_accuracy for run in self.runs if variant in run.variants]
        return [average for average in found if average is not None]


def keeps_all_images(method: str) -> bool:
    """Whether the method is trained on all images so far: a bound for the others, and not one of them."""
    return bool(getattr(METHOD_SETTINGS.get(method), "keeps_all_images", False))


def share_orders(groups: Iterable[Group]) -> bool:
    """Whether all groups have runs of the same class orders, without which their numbers cannot be compared."""
    return len({frozenset(run.order_seed for run in group.runs) for group in groups}) == 1


def by_scenario(results: Iterable[RunResult], *, across_orders: bool = False) -> dict[str, list[Group]]:
    """The groups of each scenario, the best mean average first and unfinished runs last; scenarios in the order of
    their first run.

    The accuracy of a scenario depends on the class order by some points, so runs of different orders are groups of
    their own, unless they are to be taken together (`across_orders`).
    """
    scenarios: dict[str, list[RunResult]] = {}
    for run in results:
        scenarios.setdefault(run.scenario, []).append(run)
    return {
        scenario: sorted(
            _groups(runs, across_orders), key=lambda group: (not group.is_finished, -statistics.fmean(group.averages))
        )
        for scenario, runs in scenarios.items()
    }


def comparable_groups(
    results: Iterable[RunResult], *, across_orders: bool = False
) -> Iterator[tuple[str, list[Group]]]:
    """The groups of each scenario, augmentation and class order, under a title that names these three; with
    `across_orders` the groups of all class orders together."""
    for scenario, groups in by_scenario(results, across_orders=across_orders).items():
        parts: dict[tuple[str, int | None], list[Group]] = {}
        for group in groups:
            parts.setdefault((group.augmentation, None if across_orders else group.order), []).append(group)
        for (augmentation, order), part in parts.items():
            yield f"{scenario}, augmentation {augmentation}" + ("" if order is None else f", class order {order}"), part


def _groups(runs: Sequence[RunResult], across_orders: bool) -> list[Group]:
    """Split the runs of one scenario."""
    conditions = _telling([_conditions(run) for run in runs])
    methods: dict[tuple[Any, ...], list[RunResult]] = {}
    for run in runs:
        methods.setdefault((run.method, run.augmentation, run.recipe), []).append(run)
    groups = [group for alike in methods.values() for group in _by_recipe(alike, conditions)]
    return groups if across_orders else [part for group in groups for part in _by_order(group)]


def _by_order(group: Group) -> list[Group]:
    orders: dict[int | None, list[RunResult]] = {}
    for run in group.runs:
        orders.setdefault(run.order_seed, []).append(run)
    return [replace(group, runs=tuple(runs)) for runs in orders.values()]


def _conditions(run: RunResult) -> Recipe:
    """The settings outside the methods' own sections."""
    own = f"{run.method}."
    return tuple(
        pair for pair in _recipe(run) if not (pair[0].startswith(own) or pair[0] in ("method", "augmentation"))
    )


def _telling(recipes: Sequence[Recipe]) -> set[tuple[str, str]]:
    """The pairs that tell these recipes apart: of a key with several values, all but one that more than half have."""
    counts = Counter(pair for recipe in recipes for pair in recipe)
    num_with = Counter(key for recipe in recipes for key, _ in recipe)
    usual = len(recipes) / 2
    return {pair for pair, count in counts.items() if count < num_with[pair[0]] and count <= usual}


def _by_recipe(runs: Sequence[RunResult], conditions: Collection[tuple[str, str]]) -> list[Group]:
    """Split runs of one method and augmentation by their recipe and by what makes them incomparable."""
    gone = {f"{runs[0].method}.{key}" for key in gone_settings(runs)}
    recipes: dict[tuple[Recipe, str], list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        recipe = tuple(pair for pair in _recipe(run) if pair[0] not in gone)
        recipes.setdefault((recipe, _caveat(run)), []).append(run)
    telling = _telling([recipe for recipe, _ in recipes]) | set(conditions)
    groups = []
    for (recipe, caveat), members in recipes.items():
        once: dict[tuple[int, int | None], RunResult] = {}
        for run in members:
            once.setdefault((run.seed, run.order_seed), run)
        method = members[0].method
        pairs = sorted((key.removeprefix(f"{method}."), value) for key, value in recipe if (key, value) in telling)
        repeats = f"({len(members) - len(once)} repeated left out)" if len(members) > len(once) else ""
        words = [members[0].recipe, *(_short_setting(*pair) for pair in pairs), caveat, repeats]
        groups.append(Group(method, members[0].augmentation, " ".join(filter(None, words)), tuple(once.values())))
    return groups


def gone_settings(runs: Sequence[RunResult]) -> set[str]:
    """Settings of the runs' method that this version does not have, where all runs that have one agree on it."""
    name = runs[0].method
    method = METHOD_SETTINGS.get(name)
    sections = [section for run in runs if isinstance(section := run.settings.get(name), dict)]
    keys = {key for section in sections for key in section if method and key not in method.model_fields}
    return {key for key in keys if len({json.dumps(section[key]) for section in sections if key in section}) == 1}


def varying_settings(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """For each run, its values of those settings of which the runs have more than one value, by dotted key. A list is
    its JSON text; None stands for a setting that the run does not have."""
    recipes = [dict(_recipe(run)) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    varying = [key for key in keys if len({recipe[key] for recipe in recipes if key in recipe}) > 1]
    values = [{printable(key): value for key, value in _own_settings(run).items()} for run in runs]
    return [{key: _plain(of_run.get(key)) for key in varying} for of_run in values]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return printable(json.dumps(value)) if isinstance(value, list) else value


def _recipe(run: RunResult) -> Recipe:
    settings = _own_settings(run).items()
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings}
    return tuple(sorted((printable(key), printable(value)) for key, value in plain.items()))


def _own_settings(run: RunResult) -> dict[str, Any]:
    """The settings that decide what the run learns within its scenario, by dotted key:
    `{"foster": {"beta": 1}}` -> `{"foster.beta": 1}`."""
    method = METHOD_SETTINGS.get(run.method)
    silent = NOT_RECIPE | IN_SCENARIO | (MEMORY_KEYS if method and not method.uses_memory else frozenset())
    # Settings that did not exist yet when the run was made have their defaults.
    defaults = {run.method: method().model_dump(mode="json")} if method and run.method in run.settings else {}
    settings = laid_over(defaults, run.settings)
    return flat({key: value for key, value in settings.items() if key not in silent})


def _short_setting(key: str, value: str) -> str:
    """`key=value`; empty for a setting that is not given, a hash for a list of class names."""
    if (key == "class_order" and value == "[]") or (key in MEMORY_KEYS and value == "null"):
        return ""
    shown = f"#{hashlib.sha256(value.encode()).hexdigest()[:6]}" if key == "class_order" else value
    return f"{key}={shown}"


def _caveat(run: RunResult) -> str:
    parts = [
        "" if run.finished else f"unfinished, {counted(len(run.accuracy), 'task')}",
        "" if run.evaluated_on == "test" else f"on {run.evaluated_on} images",
    ]
    text = ", ".join(filter(None, parts))
    return f"({text})" if text else ""
