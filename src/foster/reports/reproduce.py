"""The command that repeats a run."""

import shlex
from typing import Any

from foster.errors import SettingsError
from foster.settings.base import FREE_SETTINGS, flat
from foster.settings.experiment import Settings, load_settings
from foster.settings.toml import packaged_names, value_text

MACHINE = {*FREE_SETTINGS} - {"plugins"}
"""Settings that decide where and how a run computes, not what it learns."""


def command(settings: Settings) -> str:
    """`foster run PRESET KEY=VALUE...`: from the preset that needs the fewest changes."""
    candidates = [(name, _changes(settings, name)) for name in packaged_names("presets")]
    preset, changes = min(candidates, key=lambda pair: len(pair[1]))
    return shlex.join(["foster", "run", preset, *changes])


def _changes(settings: Settings, preset: str) -> list[str]:
    """The overrides that the preset needs; the method comes first, because defaults depend on it."""
    wanted = _learned(settings)
    given = load_settings(preset)
    method = [f"method={settings.method}"] if given.method != settings.method else []
    try:
        before = _learned(load_settings(preset, method))
    except SettingsError:  # the method alone does not fit this preset
        before = _learned(given)
    # What has no effect would be refused; a recipe of one's own is known by what it changed.
    silent = set() if wanted["recipe"] in packaged_names("recipes") else {"recipe"}
    silent |= {key for key in wanted if settings.why_unused(key)}
    keys = [key for key in before | wanted if before.get(key) != wanted.get(key) and key not in silent]
    taken_away = [f"{key}=none" for key in keys if wanted.get(key) is None and key in before]
    changed = [f"{key}={value_text(wanted[key])}" for key in keys if wanted.get(key) is not None and key != "method"]
    # What is taken away comes first: two budgets of the memory exclude each other.
    return [*method, *taken_away, *changed]


def _learned(settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in flat(settings.nested()).items() if key.split(".")[0] not in MACHINE}
