"""A grid of runs: `method=foster,replay seed=1993,1,2` -> six runs with checked settings and names of their own."""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foster.config import Settings, load_settings
from foster.errors import SettingsError
from foster.method_settings import METHOD_SETTINGS

LONGEST_NAME = 150
"""Names become file names with an ending, which most file systems limit to 255 bytes."""

_CLOSING = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep; `name` is that of its folder."""

    name: str
    settings: Settings


@dataclass(frozen=True)
class _Axis:
    """One `key=value,value,...` of the command line, the values as text."""

    key: str
    values: tuple[str, ...]


def plan_runs(source: str, overrides: Sequence[str], data: str | None = None) -> list[PlannedRun]:
    """All combinations of the overrides' values, in the order of a nested loop with the last key innermost.

    A key of one method's section multiplies the runs of that method alone. Everything is checked here: a wrong key or
    value anywhere is an error before the first run starts.
    """
    axes = [_axis(override) for override in overrides]
    repeated = [key for key, count in Counter(axis.key for axis in axes).items() if count > 1]
    if repeated:
        raise SettingsError(f"{repeated[0]} is given more than once; write {repeated[0]}=VALUE,VALUE")
    runs: dict[tuple[str, ...], Settings] = {}
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = [f"{axis.key}={value}" for axis, value in zip(axes, values, strict=True)]
        settings = load_settings(source, pairs, data=data)
        telling = [pair for pair, axis in zip(pairs, axes, strict=True) if _tells(axis, settings.method)]
        runs.setdefault(tuple(telling), settings)
    names = _names(list(runs), default=next(iter(runs.values())).run_name)
    planned = [PlannedRun(name, settings) for name, settings in zip(names, runs.values(), strict=True)]
    _check_different(planned)
    return planned


def default_folder(source: str) -> Path:
    """Where the runs of a sweep over `source` go."""
    path = Path(source)
    return Path("runs") / f"sweep-{path.stem if path.suffix == '.toml' else path.name}"


def split_values(text: str) -> list[str]:
    """`text` at its commas, apart from those inside brackets, braces and quotes."""
    values, value, expected, quote = [], "", [""], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSING:
            expected.append(_CLOSING[letter])
        elif letter == expected[-1]:
            expected.pop()
        elif letter == "," and len(expected) == 1:
            values.append(value.strip())
            value = ""
            continue
        value += letter
    if quote or len(expected) > 1:
        raise SettingsError(f"'{text}' lacks a closing {quote or expected[-1]} (on the command line)")
    return [*values, value.strip()]


def _axis(override: str) -> _Axis:
    key, separator, text = override.partition("=")
    key = key.strip()
    if not separator or not key:
        raise SettingsError(f"'{override}' is not of the form key=value,value,...")
    values = split_values(text)
    if len(values) > 1 and "" in values:
        raise SettingsError(f"{key}: a value is missing between the commas of '{text}' (on the command line)")
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise SettingsError(f"{key}: {repeated[0]} stands in the list more than once (on the command line)")
    return _Axis(key, tuple(values))


def _tells(axis: _Axis, method: str) -> bool:
    """Whether the axis sets runs of `method` apart."""
    section = axis.key.split(".")[0]
    return len(axis.values) > 1 and (section not in METHOD_SETTINGS or section == method)


def _names(combinations: Sequence[tuple[str, ...]], default: str) -> list[str]:
    """A folder name for each combination of `key=value`, such as `method=foster,seed=1`."""
    names = [",".join(map(_plain, pairs)) or default for pairs in combinations]
    counts = Counter(names)
    return [
        name if counts[name] == 1 and len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}-{_short_hash(pairs)}"
        for name, pairs in zip(names, combinations, strict=True)
    ]


def _plain(pair: str) -> str:
    """`key=value` in letters that a path and a shell leave alone."""
    key, _, value = pair.partition("=")
    return f"{key}={re.sub(r'[^A-Za-z0-9.+-]+', '_', value).strip('_')}"


def _short_hash(pairs: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(pairs).encode()).hexdigest()[:8]


def _check_different(runs: Sequence[PlannedRun]) -> None:
    """Two ways to write one value would train the same thing twice."""
    seen: dict[str, str] = {}
    for run in runs:
        first = seen.setdefault(run.settings.toml(), run.name)
        if first != run.name:
            raise SettingsError(f"'{first}' and '{run.name}' are the same run (on the command line)")
