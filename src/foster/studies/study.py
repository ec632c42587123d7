"""A study: a TOML file with variants of a method, what is claimed of them, and what to draw; from it, runs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from foster.errors import SettingsError, suggestion
from foster.settings.fit import Frozen
from foster.settings.keys import COMMAND_LINE, validated
from foster.settings.toml import read_named
from foster.sweep.grid import PlannedRun, distinct_name, plan_runs

Metric = Literal["average", "final", "new", "old", "gain", "tasks"]


class Variant(Frozen):
    """One way to run it: `set` holds settings as on the command line, `at` its place on the axis of a figure."""

    name: str = Field(min_length=1, max_length=200)
    set: tuple[str, ...] = ()
    at: float | None = None


class Claim(Frozen):
    """What is said of the variants, and how it is measured here.

    The difference of a metric between `first` and `second`, or its value for `first` alone; for neither, how far the
    best and the worst of all variants lie apart. The metric `tasks` counts those after which `first` is above
    `second`. With a `variant`, average and final accuracy are those of another network or
    classifier that the runs evaluated, and `gain` is how far its average lies above that of the result.
    """

    text: str
    paper: str = ""
    metric: Metric = "final"
    variant: str = ""
    first: str = ""
    second: str = ""


class Study(Frozen):
    """What a study's file holds."""

    title: str
    about: str = ""
    preset: str
    base: tuple[str, ...] = ()
    """Settings of all variants."""
    draw: Literal["curves", "axis"] = "curves"
    """Accuracy after each task, a curve a variant; or one number a variant against its place on an axis."""
    axis: str = ""
    """The name of that axis."""
    is_logarithmic: bool = False
    swaps: dict[str, dict[str, str]] = Field(default_factory=dict)
    """By dataset: settings that it needs in the place of others."""
    variants: tuple[Variant, ...] = Field(min_length=1)
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> "Study":
        names = [variant.name for variant in self.variants]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ValueError(f"two variants are called '{repeated[0]}'")
        for name in (name for claim in self.claims for name in (claim.first, claim.second) if name):
            if name not in names:
                raise ValueError(f"a claim is about '{name}', which is no variant{suggestion(name, names)}")
        if self.draw == "axis" and any(variant.at is None for variant in self.variants):
            raise ValueError("draw = 'axis' needs a place 'at' of every variant")
        return self


def load_study(source: str) -> Study:
    """A study by its name, or from a .toml file of one's own."""
    return validated(Study, read_named("studies", "study", source), f"study {source}")


def plan_study(
    study: Study,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    data: str | None = None,
    plugins: Sequence[str] | None = None,
) -> dict[str, list[PlannedRun]]:
    """The runs of each variant, checked, by its name. `overrides` are of all, and may list seeds: `seed=1993,1,2`."""
    preset = preset or study.preset
    # What the user says counts, and no key is given twice to one run.
    said = {override.partition("=")[0].strip() for override in overrides}
    planned: dict[str, list[PlannedRun]] = {}
    seen: dict[str, str] = {}
    dataset = plan_runs(preset, [], data=data, plugins=plugins)[0].settings.dataset
    for variant in study.variants:
        own = [study.swaps.get(dataset, {}).get(pair, pair) for pair in variant.set]
        keys = {pair.partition("=")[0] for pair in own}
        clash = keys & said
        if clash:
            raise SettingsError(f"{min(clash)} is what the study varies ('{variant.name}'); it cannot be given here")
        base = [pair for pair in study.base if pair.partition("=")[0] not in keys | said]
        asked = f"in the study's variant '{variant.name}' or {COMMAND_LINE}"
        planned[variant.name] = plan_runs(preset, [*base, *own, *overrides], data=data, plugins=plugins, asked=asked)
        for run in planned[variant.name]:
            first = seen.setdefault(run.settings.toml(), variant.name)
            if first != variant.name:
                raise SettingsError(f"'{first}' and '{variant.name}' are the same run with preset {preset}")
    return planned


def distinct_runs(groups: Iterable[Sequence[PlannedRun]]) -> list[PlannedRun]:
    """All runs of some variants, of one study or of several: each once, and under the shortest name of its own."""
    runs: dict[str, PlannedRun] = {}
    for run in (run for group in groups for run in group):
        same = runs.setdefault(run.settings.toml(), run)
        runs[run.settings.toml()] = min(same, run, key=lambda either: len(either.name))
    names: dict[str, PlannedRun] = {}
    for run in runs.values():
        name = distinct_name(run.name, run.settings) if run.name in names else run.name
        names[name] = replace(run, name=name)
    return list(names.values())
