"""Recipes: small files of settings that are laid over a preset, a settings file or a learner's settings."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from foster.errors import SettingsError
from foster.settings.keys import check_keys, short, toml_value
from foster.settings.toml import packaged_names, read_named
from foster.system.files import user_path

KEY = "recipe"


def read_recipe(recipe: str) -> dict[str, Any]:
    """The settings of a recipe, by the name of one of ours or by the path of a TOML file."""
    return read_named("recipes", "recipe", recipe)


def take_recipes(overrides: Sequence[str], asked: str | None = None) -> tuple[list[str], list[str]]:
    """The recipes that are asked for, by one's name or as `recipe=NAME`, in their order; and the other overrides."""
    given = [override for override in overrides if override.partition("=")[0].strip() == KEY]
    named = [toml_value(each.partition("=")[2].strip()) for each in given] if asked is None else [asked]
    recipes = [_name(each) for each in named if each not in ("none", "")]
    return recipes, [each for each in overrides if each not in given]


def with_recipes(
    data: Mapping[str, Any], recipes: Sequence[str], keys: Sequence[str], listing: str, folder: Path | None = None
) -> dict[str, Any]:
    """Plain data of a settings file with the recipes laid over it, one after the other. Without any, a recipe of ours,
    or a file, that the data name themselves is laid under them: what a file says for itself stays. `folder` is that of
    the settings file."""
    own = _seen_from(folder, _name(data.get(KEY, "")))
    if not recipes and not (own in packaged_names("recipes") or own.endswith(".toml")):
        return dict(data)  # what a run notes of a recipe that was a file
    merged = dict(data)
    for name in recipes or [own]:
        changes = read_recipe(name)
        check_keys(changes, keys, f"recipe {name}", listing)
        merged = laid_over(merged, changes) if recipes else laid_over(changes, merged)
    return {**merged, KEY: "+".join(Path(name).stem for name in recipes or [own])}


def _seen_from(folder: Path | None, recipe: str) -> str:
    """Where the recipe is that a settings file in `folder` names: beside that file, or else in the current folder."""
    if folder is not None and recipe.endswith(".toml"):
        with suppress(OSError, ValueError):  # what cannot be looked at is told when it is read
            if (file := folder / user_path(recipe)).is_file():
                return str(file)
    return recipe


def _name(asked: Any) -> str:
    if not isinstance(asked, str):
        raise SettingsError(f"recipe: this is the name of a recipe or a TOML file, not {short(asked)}")
    return asked


def laid_over(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `before`, table by table."""
    merged = dict(before)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = laid_over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
