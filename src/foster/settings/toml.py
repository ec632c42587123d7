"""TOML files, read and written as plain data; presets and recipes that come with the package."""

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from foster.errors import SettingsError, suggestion, words_of
from foster.system.files import read_limited, user_path

MAX_FILE_BYTES = 2**24
"""The largest settings file or list of class names."""

MAX_PARTS = 10_000
"""Most dots and brackets of a settings file: the time and the memory of the parser grow with the square of their
number; here they are about a second and 600 MB."""


def read_toml(path: Path, kind: str = "settings file") -> dict[str, Any]:
    """The plain data of a TOML file; messages call it a `kind`."""
    try:
        text = read_limited(path, MAX_FILE_BYTES).decode()
        if text.count(".") + text.count("[") > MAX_PARTS:
            raise SettingsError(f"'{path}' has more than {MAX_PARTS:,} dots and brackets")
        return tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"cannot read {kind} '{path}': {words_of(error)}") from None
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: Python itself refuses other encodings, overlong numbers, and NUL in a path.
        raise SettingsError(f"'{path}' is not valid TOML: {error}") from None


def packaged_names(folder: str) -> list[str]:
    """The names, without the ending, of the TOML files in a folder of the package."""
    entries = (resources.files("foster") / folder).iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


def packaged_text(folder: str, name: str) -> str:
    return (resources.files("foster") / folder / f"{name}.toml").read_text(encoding="utf-8")


def read_named(folder: str, kind: str, source: str) -> dict[str, Any]:
    """The plain data of a TOML file: one of the package's `folder`, by its name, or any other, by its path."""
    if source in packaged_names(folder):
        return tomllib.loads(packaged_text(folder, source))
    if not source.endswith(".toml"):
        hint = suggestion(source, packaged_names(folder))
        raise SettingsError(f"unknown {kind} '{source}'{hint} (a {kind} of your own is a file that ends in .toml)")
    return read_toml(Path(source), kind)


def path_named_in(folder: Path | None, file: str) -> Path:
    """A path that a settings file in `folder` names: in that folder if there is such a file, else as it is."""
    path = user_path(file)
    beside = path if folder is None else folder / path
    return beside if beside.is_file() else path


def dumps(data: Mapping[str, Any]) -> str:
    """`data` as TOML. Keys with None are left out; TypeError for a value that TOML does not have."""
    return tomli_w.dumps(_without_none(data))


def value_text(value: Any) -> str:
    """One value as TOML on one line, a mapping as an inline table; TypeError for a value that TOML does not have."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {value_text(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if value is None:
        raise TypeError("TOML has no null")
    # JSON writes texts, numbers and truth values as TOML does. NumPy's numbers and arrays become Python's.
    return value_text(value.tolist()) if hasattr(value, "tolist") else json.dumps(value, ensure_ascii=False)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list | tuple) else value


def laid_over(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`before` with the values of `changes`, also inside tables that both have."""
    merged = dict(before)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = laid_over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def toml_value(text: str) -> Any:
    """`text` as a TOML value, or unchanged if it is not TOML."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if list(parsed) == ["value"] else text
