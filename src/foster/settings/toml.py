"""TOML files with a reason where they cannot be read, and plain data as TOML text, which the standard library lacks."""

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from foster.errors import SettingsError, suggestion, words_of
from foster.system.files import read_plain

MAX_FILE_BYTES = 2**24


def read_toml(path: Path, kind: str = "settings file") -> dict[str, Any]:
    """The plain data of a TOML file; `kind` is what it is called in messages."""
    try:
        return tomllib.loads(read_plain(path, max_bytes=MAX_FILE_BYTES, may_be_link=True).decode())
    except OSError as error:
        raise SettingsError(f"cannot read {kind} '{path}': {words_of(error)}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"cannot read {kind} '{path}': not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: Python itself refuses overlong numbers, and NUL in a path.
        raise SettingsError(f"'{path}' is not valid TOML: {error}") from None


def packaged_names(room: str) -> list[str]:
    """The TOML files that come with the package in the folder `room`, by their names without the ending."""
    entries = (resources.files("foster") / room).iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


def packaged_text(room: str, name: str) -> str:
    return (resources.files("foster") / room / f"{name}.toml").read_text(encoding="utf-8")


def read_named(room: str, kind: str, source: str) -> dict[str, Any]:
    """The plain data of one of ours in `room`, by its name, or of a TOML file of one's own."""
    if source in packaged_names(room):
        return tomllib.loads(packaged_text(room, source))
    if not source.endswith(".toml"):
        hint = suggestion(source, packaged_names(room))
        raise SettingsError(f"unknown {kind} '{source}'{hint} (a {kind} of your own is a file that ends in .toml)")
    return read_toml(Path(source), kind)


def dumps(data: Mapping[str, Any]) -> str:
    """`data` as TOML: plain keys first, then one table for each nested mapping. Keys with None are left out."""
    return "\n".join(_table(data, ())).strip() + "\n"


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, Mapping) and value is not None}
    lines = [f"{_key(key)} = {value_text(value)}" for key, value in plain.items()]
    if path and (lines or not data):
        lines.insert(0, f"\n[{'.'.join(map(_key, path))}]")
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += _table(value, (*path, key))
    return lines


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else value_text(key)


def value_text(value: Any) -> str:
    """One value as TOML, a mapping as an inline table without its Nones; TypeError for what TOML cannot hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integral):
        return repr(int(value))
    if isinstance(value, Real):  # NumPy's numbers are these, too, and would not be written as numbers
        return repr(float(value))
    if isinstance(value, str):
        # JSON escapes are valid TOML basic-string escapes, except for DEL and lone surrogates, which JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Mapping):
        parts = [f"{_key(key)} = {value_text(part)}" for key, part in value.items() if part is not None]
        return f"{{{', '.join(parts)}}}"
    raise TypeError(f"cannot write {type(value).__name__} as TOML")
