"""Dotted keys of settings: the known ones, how text sets one, and the message where a value does not fit."""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from foster.errors import SettingsError, suggestion
from foster.settings.fit import Frozen
from foster.settings.methods import DEFAULT_METHOD

Model = TypeVar("Model", bound=Frozen)

COMMAND_LINE = "on the command line"
"""The usual place of overrides, in messages."""

UNSETTABLE = frozenset({"memory_total", "memory_per_class", "order_seed"})
"""Keys that `key=none` on the command line unsets."""

MEMORY_KEYS = frozenset({"memory_total", "memory_per_class", "selection"})
"""Settings without effect for a method without a memory."""

FREE_SETTINGS = ("data", "device", "checkpoint_minutes", "keep_networks", "first_task_from", "engine", "plugins")
"""Settings that may change when a run is resumed: they decide where and how it computes, not what it learns."""

UNION_MEMBER = re.compile(r"Augmentation|str|float|(tuple|literal)\[.*|constrained-.*")
"""What pydantic adds to the location of an error where a value may have several types."""

KINDS = {
    "int": "this is a whole number",
    "float": "this is a number",
    "bool": "this is true or false",
    "string": "this is a text",
    "tuple": 'this is a list, such as ["a", "b"] or [1, 2]',
    "model": "this is a table of settings",
}
"""The type of a value in plain words; pydantic's messages speak of parsing, tuples and our classes."""

FIELD_NAMES = {
    "init_cls": "base_classes",
    "memory_size": "memory_total",
    "buffer_size": "memory_total",
    "model": "method",
    "model_name": "method",
    "convnet_type": "backbone",
    "lr": "learning_rate",
    "data_path": "data",
    "data_dir": "data",
}
"""Names in other toolkits, for "did you mean"."""


@cache
def keys_of(model: type[Frozen], skip: str = "") -> tuple[str, ...]:
    """Every dotted key of a settings class, with those of nested settings."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        if name == skip:
            continue
        kinds = [field.annotation, *get_args(field.annotation)]  # of `Table | None` and `str | Table`, both members
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Frozen)]
        keys += [] if tables == kinds else [name]
        keys += [f"{name}.{key}" for table in tables for key in keys_of(table)]
    return tuple(keys)


def check_keys(data: Mapping[str, Any], keys: Sequence[str], origin: str, listing: str, prefix: str = "") -> None:
    """Refuse nested `data` with a key that is not among the dotted `keys`, which the command `listing` prints."""
    known = {key.split(".")[prefix.count(".")] for key in keys if key.startswith(prefix)}
    for key, value in data.items():
        if key not in known:
            raise SettingsError(f"unknown key '{prefix}{key}'{key_hint(prefix + key, keys, listing)} (in {origin})")
        below = f"{prefix}{key}."
        if isinstance(value, Mapping) and any(each.startswith(below) for each in keys):
            check_keys(value, keys, origin, listing, below)


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    by_key: dict[str, Any] = {}
    for key, value in data.items():
        by_key |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return by_key


def key_hint(key: str, keys: Sequence[str], listing: str = "", method: str = DEFAULT_METHOD) -> str:
    """The nearest key, also by its last part: `num_proxies` -> `podnet.num_proxies`.

    Keys of the same section, or of `method`, are preferred. Where no key is near, the hint names the command `listing`.
    """
    last = key.rsplit(".", 1)[-1]
    last = FIELD_NAMES.get(last, last)
    same_end = [known for known in keys if known.rsplit(".", 1)[-1] == last]
    home = key.split(".")[0] if "." in key else method
    at_home = [known for known in same_end if known.startswith(f"{home}.")]
    if same_end:
        return f"; did you mean '{difflib.get_close_matches(key, at_home or same_end, n=1, cutoff=0)[0]}'?"
    hint = suggestion(key, keys)
    return hint if "did you mean" in hint or not listing else f"; '{listing}' prints all keys"


def apply_override(data: dict[str, Any], override: str, keys: Sequence[str], listing: str, asked: str) -> None:
    """Set one `key=value` in `data`. The value is TOML, else plain text; `none` unsets an optional key.

    `keys` are the dotted keys that may be set, `listing` is the command that prints them, and `asked` names the place
    of the override in messages.
    """
    key, separator, text = override.partition("=")
    key = key.strip()
    if not separator or not key:
        raise SettingsError(f"'{override}' is not of the form key=value")
    if key not in keys and not any(known.startswith(f"{key}.") for known in keys):
        method = str(data.get("method", DEFAULT_METHOD))
        raise SettingsError(f"unknown key '{key}'{key_hint(key, keys, listing, method)} ({asked})")
    target = data
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(target.get(parent), dict):
            target[parent] = {}
        target = target[parent]
    # None, not the key's absence: `data` may be changes to settings that have it.
    is_none = text.strip() == "none" and key in UNSETTABLE
    target[last] = None if is_none else toml_value(text.strip())


def is_part(override: str, table: str) -> bool:
    """Whether a `key=value` sets a part of `table`, as `augmentation.flip=false` does of augmentation."""
    return override.partition("=")[0].strip().startswith(f"{table}.")


def toml_value(text: str) -> Any:
    """`text` as a TOML value, or unchanged where it is not TOML."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if list(parsed) == ["value"] else text


def validated(model: type[Model], data: Any, origin: str, prefix: str = "") -> Model:
    """`model` from `data`, or one line that names the key, the value and what it should be."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # Where a value may have several types, the deepest error is about the intended one.
        first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    key = prefix + ".".join(str(part) for part in first["loc"] if not UNION_MEMBER.fullmatch(str(part)))
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    kind, separator, fault = first["type"].partition("_")
    if kind in KINDS and separator and fault in ("type", "parsing", "from_float"):
        message = KINDS[kind]
    if first["type"] == "missing":
        raise SettingsError(f"{key}: this key is missing (in {origin})")
    if first["type"] == "extra_forbidden":
        hint = key_hint(key, [prefix + known for known in keys_of(model)])
        raise SettingsError(f"unknown key '{key}'{hint} (in {origin})")
    if not first["loc"]:
        raise SettingsError(f"{message} (in {origin})")
    if first["type"] == "value_error":
        raise SettingsError(f"{key}: {message} (in {origin})")
    raise SettingsError(f"{key}: {message}, not {short(first['input'])} (in {origin})")


def short(value: Any) -> str:
    """A value in at most 60 characters, for a message."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long to be written
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."
