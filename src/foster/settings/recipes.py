"""Recipes: small files of settings that are laid over a preset, a settings file or a learner's settings."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foster.errors import SettingsError, suggestion
from foster.settings.keys import check_keys, short, toml_value
from foster.settings.toml import packaged_names, packaged_text, read_toml

KEY = "recipe"


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return packaged_names("recipes")


def recipe_text(name: str) -> str:
    return packaged_text("recipes", name)


def read_recipe(recipe: str) -> dict[str, Any]:
    """The settings of a recipe, by the name of one of ours or by the path of a TOML file."""
    if recipe in recipe_names():
        return tomllib.loads(recipe_text(recipe))
    if not recipe.endswith(".toml"):
        hint = suggestion(recipe, recipe_names())
        raise SettingsError(f"unknown recipe '{recipe}'{hint} (a recipe of your own is a file that ends in .toml)")
    return read_toml(Path(recipe), "recipe")


def take_recipe(overrides: Sequence[str], asked: str | None = None) -> tuple[str, list[str]]:
    """The recipe that is asked for, by itself or as `recipe=NAME`, empty for none; and the other overrides."""
    given = [override for override in overrides if override.partition("=")[0].strip() == KEY]
    if asked is None and given:
        asked = toml_value(given[-1].partition("=")[2].strip())
        if not isinstance(asked, str):
            raise SettingsError(f"recipe: this is the name of a recipe or a TOML file, not {short(asked)}")
    return "" if asked in (None, "none") else str(asked), [each for each in overrides if each not in given]


def with_recipe(data: Mapping[str, Any], recipe: str, keys: Sequence[str], listing: str) -> dict[str, Any]:
    """Plain data of a settings file with `recipe` laid over it. Without one, a recipe of ours, or a file, that the data
    name themselves is laid under them: what a file says for itself stays."""
    name = recipe or data.get(KEY, "")
    if not isinstance(name, str):
        raise SettingsError(f"recipe: this is the name of a recipe or a TOML file, not {short(name)}")
    if not recipe and not (name in recipe_names() or name.endswith(".toml")):
        return dict(data)  # what a run notes of a recipe that was a file
    changes = read_recipe(name)
    check_keys(changes, keys, f"recipe {name}", listing)
    merged = laid_over(data, changes) if recipe else laid_over(changes, data)
    return {**merged, KEY: Path(name).stem}


def laid_over(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `before`, table by table."""
    merged = dict(before)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = laid_over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
