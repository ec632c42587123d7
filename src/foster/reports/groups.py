"""Groups of runs that differ in their seed alone, and the settings in which each group differs from its preset."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from foster.errors import SettingsError
from foster.experiment.results import RunResult
from foster.settings.augmentation import Augmentation
from foster.settings.base import FREE_SETTINGS, MEMORY_KEYS, flat, method_section
from foster.settings.experiment import Settings, load_settings
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS, facts_of
from foster.settings.toml import packaged_names
from foster.system.counts import counted
from foster.system.output import printable

NOT_SHOWN = frozenset(
    {*FREE_SETTINGS, *("seed", "order_seed", "class_order", "recipe", "method")}
    | {"dataset", "base_classes", "increment", "task_sizes", "tasks"}  # in the name of the scenario
)
"""Settings that do not change what is learned, or that have a column of their own in a table."""

Changes = dict[str, Any]
"""Settings that differ from the preset and recipe, by dotted key."""


@dataclass(frozen=True)
class Group:
    """Runs of one scenario, method, augmentation and recipe with equal settings and tasks, no two with the same seeds.

    Of runs that differ only in where and how they were computed, only the first is used.
    """

    runs: tuple[RunResult, ...]
    changes: tuple[str, ...] = ()
    """The settings that are not those of the preset and the recipe, as `key=value`."""
    shared: tuple[str, ...] = ()
    """The changes that all groups of the scenario share; they are shown once, in a title."""
    remark: str = ""
    """What makes the group incomparable, such as `(unfinished, 2 tasks)`."""
    repeated: tuple[RunResult, ...] = ()
    """Other runs with the same seeds, which are left out."""

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def augmentation(self) -> str:
        return self.runs[0].augmentation

    @property
    def recipe(self) -> str:
        """The name of the recipe; empty for none."""
        return self.runs[0].recipe

    @property
    def name(self) -> str:
        """The method, and the recipe, settings and remark that distinguish the group in a table."""
        unshared = [change for change in self.changes if change not in self.shared]
        return " ".join(filter(None, (self.method, self.recipe, *unshared, self.remark)))

    @property
    def averages(self) -> list[float]:
        """Average incremental accuracy of each run."""
        return [run.average_incremental_accuracy for run in self.runs]

    @property
    def is_finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def is_bound(self) -> bool:
        """Whether the method is trained on all images so far. It is a bound and is not compared with the others."""
        return facts_of(self.method).keeps_all_images

    @property
    def order(self) -> int | str | None:
        """The class order that all runs share; None if they differ, or if the tasks are given."""
        orders = {run.order for run in self.runs}
        return orders.pop() if len(orders) == 1 else None

    @property
    def variants(self) -> list[str]:
        """The names of the method's own variants beside the result."""
        return list(dict.fromkeys(name for run in self.runs for name in run.shown_variants))

    def variant_averages(self, variant: str) -> list[float]:
        """Average incremental accuracy of a variant, for the runs that have one."""
        found = [run.variants[variant].average_incremental_accuracy for run in self.runs if variant in run.variants]
        return [average for average in found if average is not None]


def by_scenario(results: Iterable[RunResult], *, across_orders: bool = False) -> dict[str, list[Group]]:
    """The groups of each scenario, the best mean average first and unfinished runs last; scenarios in the order of
    their first run.

    The class order changes the accuracy by some points, so runs of different orders are in different groups, except
    with `across_orders`.
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


def titled(scenario: str, groups: Sequence[Group]) -> str:
    """The scenario, with the changed settings that all its groups share."""
    return ", ".join([scenario, *groups[0].shared])


def comparable_groups(results: Iterable[RunResult]) -> Iterator[tuple[str, list[Group]]]:
    """The groups of each scenario, augmentation and class order, under a title that names these three."""
    for scenario, groups in by_scenario(results).items():
        parts: dict[tuple[str, int | str | None], list[Group]] = {}
        for group in groups:
            parts.setdefault((group.augmentation, group.order), []).append(group)
        for (augmentation, order), part in parts.items():
            title = f"{titled(scenario, part)}, augmentation {augmentation}"
            yield title + ("" if order is None else f", class order {order}"), part


def _groups(runs: Sequence[RunResult], across_orders: bool) -> list[Group]:
    """Split the runs of one scenario."""
    changed = changed_settings(runs)
    shared = _shared(runs, changed)
    alike: dict[tuple[Any, ...], list[RunResult]] = {}
    for run, changes in sorted(zip(runs, changed, strict=True), key=lambda each: each[0].seed):
        order = None if across_orders else run.order
        # Two folders of photos may have the same scenario name. An unfinished run has only some of the classes.
        classes = frozenset(run.classes) if run.finished else None
        shown = (_texts(changes, run.method), _texts(shared, run.method), _remark(run))
        facts = (json.dumps(changes), run.method, run.augmentation, order, run.recipe, run.classes_seen, classes)
        alike.setdefault((*shown, *facts), []).append(run)
    groups = []
    for (texts, of_all, remark, *_), members in alike.items():
        once: dict[tuple[int, int | str | None], RunResult] = {}
        for run in members:
            once.setdefault((run.seed, run.order), run)
        repeated = tuple(run for run in members if run not in once.values())
        groups.append(Group(tuple(once.values()), texts, of_all, remark, repeated))
    return groups


def run_names(runs: Sequence[RunResult]) -> list[str]:
    """A name for each run, as in a table; augmentation, scenario or seeds are added where names would be equal."""
    changed = changed_settings(runs)
    shared = _shared(runs, changed)
    names = []
    for run, changes in zip(runs, changed, strict=True):
        names.append(Group((run,), _texts(changes, run.method), _texts(shared, run.method)).name)
    for parts in zip(*((run.augmentation, run.scenario, f"s{run.seeds}") for run in runs), strict=True):
        found = set(zip(names, parts, strict=True))
        several = {name for name in names if len([part for other, part in found if other == name]) > 1}
        names = [f"{name} {part}" if name in several else name for name, part in zip(names, parts, strict=True)]
    return names


def _remark(run: RunResult) -> str:
    parts = [
        "" if run.finished else f"unfinished, {counted(len(run.accuracy), 'task')}",
        "" if run.evaluated_on == "test" else f"on {run.evaluated_on} images",
    ]
    text = ", ".join(filter(None, parts))
    return printable(f"({text})") if text else ""


def _shared(runs: Sequence[RunResult], changed: Sequence[Changes]) -> Changes:
    """The changes, outside the tables of methods, that are equal in all runs with that setting."""
    methods = {run.method for run in runs}
    used = [learning_settings(run) for run in runs]
    return {
        key: value
        for changes in changed
        for key, value in changes.items()
        if key.partition(".")[0] not in methods
        and all(facts.get(key) == value or key not in settings for facts, settings in zip(changed, used, strict=True))
    }


def changed_settings(runs: Sequence[RunResult]) -> list[Changes]:
    """For each run, the settings that are not those of its preset and recipe, by dotted key. `auto` is
    equal to the value that it stands for."""
    used = [learning_settings(run) for run in runs]
    values: dict[tuple[str, str], set[str]] = {}
    for run, settings in zip(runs, used, strict=True):
        for key, value in settings.items():
            values.setdefault((run.method, key), set()).add(json.dumps(value))
    varied = {pair for pair, found in values.items() if len(found) > 1}
    nearest = {scenario: _nearest_preset(scenario, runs) for scenario in {run.scenario for run in runs}}
    return [_changes_of(run, settings, nearest[run.scenario], varied) for run, settings in zip(runs, used, strict=True)]


def _changes_of(run: RunResult, settings: Changes, preset: str | None, varied: Set[tuple[str, str]]) -> Changes:
    """The settings to show of one run; `varied` has each method with the settings in which its runs differ."""
    usual, plain = _usual_settings(preset, run.method, run.recipe), _usual_settings(preset, run.method)
    # Where the recipe has settings that are newer than the run, the run had the value of the preset without the recipe.
    newer = {key: value for key, value in plain.items() if key not in settings and key.startswith(f"{run.method}.")}
    facts = newer | settings
    changed = {key for key, value in facts.items() if key in usual and usual[key] != value}
    unknown = {key for key in facts if key not in usual and (run.method, key) in varied}
    without_effect = {f"{run.method}.{key}" for key in facts_of(run.method).without_effect(run.task_sizes)}
    return {key: facts[key] for key in sorted((changed | unknown) - without_effect)}


def learning_settings(run: RunResult) -> dict[str, Any]:
    """The settings that change what the run learns within its scenario, by dotted key: `foster.beta`.

    The number of processes, which divide every batch, and the start of the hash of each plug-in are included.
    """
    left_out = NOT_SHOWN | (frozenset() if facts_of(run.method).uses_memory else MEMORY_KEYS)
    settings = _decided(flat({key: value for key, value in run.settings.items() if key not in left_out}), run.method)
    settings = {key: value for key, value in settings.items() if key != "augmentation"}  # it has a column of its own
    plugins = run.environment.get("plugins")
    versions = plugins.items() if isinstance(plugins, dict) else ()
    processes = {"processes": run.environment.get("processes", 1)}
    return settings | processes | {f"plugins.{name}": str(version)[:8] for name, version in versions}


def _decided(settings: dict[str, Any], method: str) -> dict[str, Any]:
    """The settings by dotted key, with the values that `auto` stands for in the method's table."""
    given = {f"{method}.{key}": value for key, value in facts_of(method).auto_values.items()}
    return settings | {key: value for key, value in given.items() if settings.get(key) == "auto"}


def _nearest_preset(scenario: str, runs: Sequence[RunResult]) -> str | None:
    """The scenario's preset. Without one, it is the preset of the same dataset from which the runs of the scenario
    differ in the fewest settings. All have the same preset: runs of different settings need different names."""
    if scenario in presets():
        return presets()[scenario]
    members = [run for run in runs if run.scenario == scenario]
    datasets = {run.settings.get("dataset") for run in members}
    alike = [name for name in presets().values() if {load_settings(name).dataset} == datasets]

    def num_differences(preset: str) -> int:
        pairs = [(learning_settings(run), _usual_settings(preset, run.method, run.recipe)) for run in members]
        return sum(usual.get(key, value) != value for facts, usual in pairs for key, value in facts.items())

    return min(alike, key=num_differences, default=None)


def _usual_settings(preset: str | None, method: str, recipe: str = "") -> Mapping[str, Any]:
    return _settings_of(preset, method, recipe, METHOD_SETTINGS.get(method))


@cache
def _settings_of(preset: str | None, method: str, recipe: str, kind: type[MethodSettings] | None) -> Mapping[str, Any]:
    """The settings of the preset with the method and the recipe, by dotted key; without a preset, the defaults. `kind`
    is the class of the method's settings; None for a method that is not known here."""
    # Of a user's own recipe, the settings are shown.
    recipes = [name for name in dict.fromkeys(recipe.split("+")) if name in packaged_names("recipes")]
    overrides = [*([f"method={method}"] if kind else []), *(f"recipe={name}" for name in recipes)]
    try:
        usual = load_settings(preset, overrides).complete()
    except SettingsError:  # there is no preset, or it does not fit the method
        options = method_section(method, {}, f"method {method}") if kind else MethodSettings()
        usual = Settings.model_construct(method=method, options=options).complete()
    # Of a table of augmentations, the keys that are not the defaults are shown.
    complete = (
        {} if isinstance(usual["augmentation"], dict) else {"augmentation": Augmentation().model_dump(mode="json")}
    )
    facts = flat(usual | complete | {"processes": 1})
    if kind is None:  # the defaults of the method are not known
        facts = {key: value for key, value in facts.items() if not key.startswith(f"{method}.")}
    return _decided(facts, method)


@cache
def presets() -> dict[str, str]:
    """The preset of each scenario, by the scenario's name."""
    return {load_settings(name).scenario: name for name in packaged_names("presets")}


def _texts(changes: Changes, method: str) -> tuple[str, ...]:
    """`key=value` of each setting, without the method's name. None is not shown: of the two
    budgets of the memory, one is None."""
    shown = {key.removeprefix(f"{method}."): value for key, value in changes.items() if value is not None}
    return tuple(printable(f"{key}={_value_text(value)}") for key, value in shown.items())


def _value_text(value: Any) -> str:
    """A value as text; a long list by its first values and its last one."""
    if isinstance(value, list) and len(value) > 4:
        return f"[{', '.join(map(str, value[:2]))}, ..., {value[-1]}]"
    return value if isinstance(value, str) else json.dumps(value)
