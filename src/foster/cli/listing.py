"""The command list: presets, recipes, methods, datasets, backbones and studies."""

import textwrap
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from foster.cli.options import Plugins
from foster.errors import SettingsError, suggestion
from foster.settings import toml as toml_text
from foster.settings.toml import packaged_names, packaged_text
from foster.system.counts import counted


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="presets, recipes, methods, datasets, backbones or studies."),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print one preset, recipe, study or method's settings as TOML.")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """List presets, recipes, methods, datasets, backbones or studies; with a NAME, print that one.

    Example: foster list methods foster
    """
    if kind is None:
        for each, make in LISTINGS.items():
            # The names of backbones are left out: to list them, torch is imported, which takes seconds.
            _echo_entry(each, "see 'foster list backbones'" if each == "backbones" else ", ".join(make()), 11)
        typer.echo("'foster list KIND' explains them.")
        return
    if kind not in LISTINGS:
        raise SettingsError(f"unknown kind '{kind}'{suggestion(kind, LISTINGS)}")
    listing = LISTINGS[kind]()
    if name is not None:
        typer.echo(_shown(kind, name, listing), nl=False)
        return
    for each, text in listing.items():
        _echo_entry(each, text, max(map(len, listing)) + 2)


def _echo_entry(name: str, text: str, indent: int) -> None:
    line = f"{name:<{indent}}{text}"
    typer.echo(textwrap.fill(line, 118, subsequent_indent=" " * indent, break_on_hyphens=False))


def _titles(folder: str) -> dict[str, str]:
    return {name: packaged_text(folder, name).splitlines()[0].removeprefix("# ") for name in packaged_names(folder)}


def _methods() -> dict[str, str]:
    from foster.settings.methods import METHOD_SETTINGS

    return {name: f"{one.summary} ({one.paper})" if one.paper else one.summary for name, one in METHOD_SETTINGS.items()}


def _datasets() -> dict[str, str]:
    from foster.settings.datasets import CATALOGUE

    return {name: facts.description for name, facts in CATALOGUE.items()}


def _backbones() -> dict[str, str]:
    from foster.networks import BACKBONES

    # Those with a cosine head are chosen by the methods that need one.
    return {name: _about_backbone(make) for name, make in BACKBONES.items() if not name.startswith("cosine_")}


def _about_backbone(make: Callable[..., Any]) -> str:
    """The first paragraph of the builder's docstring, and that of the stem that it is given."""
    if isinstance(make, partial):
        return " ".join(_about_backbone(each) for each in (make.func, *filter(callable, make.args)))
    return " ".join((make.__doc__ or "").split("\n\n")[0].split())


def _studies() -> dict[str, str]:
    from foster.studies.study import load_study

    studies = {name: load_study(name) for name in packaged_names("studies")}
    return {
        name: f"{one.title}: {counted(len(one.variants), 'variant')} on {', '.join(one.presets)}"
        for name, one in studies.items()
    }


LISTINGS: dict[str, Callable[[], dict[str, str]]] = {
    "presets": partial(_titles, "presets"),
    "recipes": partial(_titles, "recipes"),
    "methods": _methods,
    "datasets": _datasets,
    "backbones": _backbones,
    "studies": _studies,
}
"""For each kind, a function that returns the names with a line about each."""


def _shown(kind: str, name: str, listing: dict[str, str]) -> str:
    from foster.settings.base import flat
    from foster.settings.experiment import load_settings

    if kind == "presets":  # or a settings file, or the folder of a run
        settings = load_settings(name)
        shown = flat(settings.nested())
        unset = [key for key, value in flat(settings.complete()).items() if key not in shown or value is None]
        comment = _comment(f"Keys without a value: {', '.join(key for key in unset if not settings.why_unused(key))}.")
        return "\n".join([settings.toml(), *comment, ""])
    if name not in listing:
        raise SettingsError(f"unknown {kind.removesuffix('s')} '{name}'{suggestion(name, listing)}")
    if kind == "methods":
        return method_text(name)
    return packaged_text(kind, name) if kind in ("recipes", "studies") else f"{name}  {listing[name]}\n"


def method_text(name: str) -> str:
    """One method: its paper and classifier as comments, then all settings with their default values as TOML, each with
    its meaning as a comment."""
    from foster.experiment.results import CLASSIFIERS
    from foster.settings.methods import METHOD_SETTINGS

    settings = METHOD_SETTINGS[name]
    texts = {key: field.description or "" for key, field in settings.model_fields.items()}
    facts = [
        settings.summary,
        *([settings.paper] if settings.paper else []),
        f"Classified by: {CLASSIFIERS[settings.classifies_by]}.",
        f"Augmentation of its published results: {settings.published_augmentation}.",
    ]
    text = toml_text.dumps({name: settings().model_dump(mode="json")})
    top, table, schedules = text.partition(f"\n[{name}.")
    lines = [line for fact in facts for line in _comment(fact)]
    for line in top.splitlines():
        lines += [*_comment(texts.get(line.partition(" = ")[0], "")), line]
    return "\n".join(lines) + "\n" + table + schedules


def _comment(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 100, initial_indent="# ", subsequent_indent="# ")
