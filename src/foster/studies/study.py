"""A study: a TOML file with variants, the presets that they run on, claims about them, and a figure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from foster.errors import SettingsError, suggestion
from foster.settings.base import COMMAND_LINE, validated
from foster.settings.fit import Frozen
from foster.settings.toml import packaged_names, read_named
from foster.sweep.grid import PlannedRun, distinct_name, plan_runs, split_values

PARTS = ("methods", "protocols")
"""Keys that select a part of a study."""

Metric = Literal["average", "final", "new", "old", "gain", "tasks"]


class Variant(Frozen):
    """One variant: `set` has settings as on the command line, `at` its position on the axis of a figure, `paper` the
    average incremental accuracy in the paper, by preset."""

    name: str = Field(min_length=1, max_length=200)
    set: tuple[str, ...] = ()
    at: float | None = None
    paper: dict[str, float] = Field(default_factory=dict)


class Claim(Frozen):
    """A claim about the variants, and how it is measured.

    The number is the difference of a metric between `first` and `second`, or its value for `first` alone; for neither,
    the difference between the best and the worst variant. The metric `tasks` is the percentage of later tasks after
    which `first` is above `second`. With a `variant`, average and final accuracy are those of another network or
    classifier that the runs evaluated, and `gain` is its average minus that of the result.

    The claim holds if the number lies between `low` and `high`. A claim with neither has no verdict.
    """

    text: str
    paper: str = ""
    low: float | None = None
    high: float | None = None
    metric: Metric = "final"
    variant: str = ""
    first: str = ""
    second: str = ""


class Study(Frozen):
    """The content of a study's file."""

    title: str
    about: str = ""
    presets: tuple[str, ...] = Field(min_length=1)
    """The presets that every variant runs on."""
    base: tuple[str, ...] = ()
    """Settings of all variants."""
    draw: Literal["curves", "axis"] = "curves"
    """`curves`: accuracy after each task, a curve for each variant; `axis`: one number for each variant against its
    position."""
    axis: str = ""
    """The name of that axis."""
    is_logarithmic: bool = False
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
        for name in (name for variant in self.variants for name in variant.paper):
            if name not in self.presets:
                raise ValueError(
                    f"'paper' names '{name}', which is none of the presets{suggestion(name, self.presets)}"
                )
        if (self.draw == "axis" or self.claims) and len(self.presets) > 1:
            raise ValueError("claims and draw = 'axis' need a study of one preset")
        if self.draw == "axis" and any(variant.at is None for variant in self.variants):
            raise ValueError("draw = 'axis' needs 'at' in every variant")
        return self


def load_study(source: str) -> Study:
    """The study of this name, or of a .toml file."""
    return validated(Study, read_named("studies", "study", source), f"study {source}")


@dataclass(frozen=True)
class PlannedStudy:
    """A study, and the runs of each of its variants by their names."""

    name: str
    study: Study
    planned: dict[str, list[PlannedRun]]


def plan_studies(
    names: Sequence[str],
    preset: str | None = None,
    overrides: Sequence[str] = (),
    data: str | None = None,
    plugins: Sequence[str] | None = None,
) -> list[PlannedStudy]:
    """The studies of these names, or of these .toml files, with checked runs."""
    if not names:
        known = ", ".join(packaged_names("studies"))
        raise SettingsError(f"no study is named; choose from {known}, or name a .toml file of your own")
    titles = [Path(name).stem for name in names]
    for title in titles:
        if titles.count(title) > 1:
            raise SettingsError(f"two studies are called '{title}'")
    studies = [load_study(name) for name in names]
    return [
        PlannedStudy(title, study, plan_study(study, preset, overrides, data, plugins))
        for title, study in zip(titles, studies, strict=True)
    ]


def plan_study(
    study: Study,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    data: str | None = None,
    plugins: Sequence[str] | None = None,
) -> dict[str, list[PlannedRun]]:
    """The checked runs of each variant, by its name. `overrides` apply to all runs and may list seeds: `seed=1993,1,2`.

    With the override `methods=A,B` or `protocols=A,B`, only the runs of these methods, or on these presets.
    """
    parts = {key: split_values(text) for key, _, text in (each.partition("=") for each in overrides) if key in PARTS}
    overrides = [each for each in overrides if each.partition("=")[0] not in PARTS]
    methods, protocols = (parts.get(key, []) for key in PARTS)
    presets = (preset,) if preset else study.presets
    for name in protocols:
        if name not in presets:
            raise SettingsError(f"protocols: the study has no '{name}'{suggestion(name, presets)}")
    planned: dict[str, list[PlannedRun]] = {}
    for name in protocols or presets:
        for variant, runs in _on_preset(study, name, overrides, data, plugins).items():
            planned.setdefault(variant, []).extend(runs)
    found = {run.settings.method for runs in planned.values() for run in runs}
    for name in methods:
        if name not in found:
            raise SettingsError(f"methods: the study has no '{name}'{suggestion(name, found)}")
    if methods:
        planned = {name: [run for run in runs if run.settings.method in methods] for name, runs in planned.items()}
    return {name: runs for name, runs in planned.items() if runs}


def _on_preset(
    study: Study, preset: str, overrides: Sequence[str], data: str | None, plugins: Sequence[str] | None
) -> dict[str, list[PlannedRun]]:
    # A setting of the user replaces that of the study.
    given = {override.partition("=")[0].strip() for override in overrides}
    planned: dict[str, list[PlannedRun]] = {}
    for variant in study.variants:
        keys = {pair.partition("=")[0] for pair in variant.set}
        clash = keys & given
        if clash:
            raise SettingsError(f"{min(clash)} is set by the study's variant '{variant.name}' and cannot be changed")
        base = [pair for pair in study.base if pair.partition("=")[0] not in keys | given]
        place = f"in the study's variant '{variant.name}' or {COMMAND_LINE}"
        planned[variant.name] = plan_runs(
            preset, [*base, *variant.set, *overrides], data=data, plugins=plugins, place=place
        )
    return planned


def distinct_runs(studies: Iterable[PlannedStudy]) -> list[PlannedRun]:
    """All runs of the studies, each once, under its shortest name."""
    runs: dict[str, PlannedRun] = {}
    for run in (run for each in studies for variant in each.planned.values() for run in variant):
        runs[run.key] = min(runs.get(run.key, run), run, key=lambda either: len(either.name))
    names: dict[str, PlannedRun] = {}
    for run in runs.values():
        name = distinct_name(run.name, run.settings) if run.name in names else run.name
        names[name] = replace(run, name=name)
    return list(names.values())
