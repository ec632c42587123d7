"""Plug-ins: modules from outside that register methods, datasets and backbones when they are imported.

Importing a module runs it, so it must have been asked for by the user: in a settings file, on the command line, from
Python, or by installing a package with an entry point. What a bundle says it needs is never imported by itself.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from foster.errors import SettingsError

GROUP = "foster.plugins"
"""The entry points of installed packages that are plug-ins."""

Kind = Literal["method", "dataset", "backbone"]
Thing = TypeVar("Thing")


class Origin(NamedTuple):
    """Where what was registered comes from: the plug-in, and the class or function in it."""

    plugin: str
    maker: str


_ORIGINS: dict[tuple[Kind, str], Origin] = {}
"""Of every name that a plug-in registered; ours have none."""
_importing: list[str] = []


def register(kind: Kind, table: MutableMapping[str, Thing], name: str, thing: Thing, maker: Any) -> None:
    """Enter `thing`, which the class or function `maker` makes, into a table of names.

    What the same class or function registered before, as a cell of a notebook that is run again, is replaced.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise SettingsError(f"the name of a {kind} has small letters, digits, - and _, unlike '{name}'")
    plugin = _importing[-1] if _importing else maker.__module__
    origin = Origin(plugin, f"{maker.__module__}.{getattr(maker, '__qualname__', name)}")
    there = _ORIGINS.get((kind, name))
    if name in table and (there is None or there.maker != origin.maker):
        owner = f"plug-in '{there.plugin}'" if there else "foster itself"
        raise SettingsError(f"there is a {kind} '{name}' already, from {owner}; register yours under another name")
    table[name] = thing
    _ORIGINS[kind, name] = origin


def is_registered(kind: Kind, name: str) -> bool:
    """Whether the name is that of a plug-in's, not one of ours."""
    return (kind, name) in _ORIGINS


def plugins_of(names: Mapping[Kind, str]) -> tuple[str, ...]:
    """The modules of the plug-ins that these names come from."""
    found = [_ORIGINS[kind, name].plugin for kind, name in names.items() if is_registered(kind, name)]
    return tuple(dict.fromkeys(found))


def load_plugins(asked: Sequence[str], folder: Path | None = None) -> tuple[str, ...]:
    """Import the installed plug-ins, then those that are asked for: modules, or paths of files and packages.

    Modules are looked for where Python finds them, in the current folder, and in `folder`, that of the settings; paths
    begin there. Returns how each is found again from another folder.
    """
    _load_installed()
    return tuple(dict.fromkeys(_load(name, (folder or Path()).resolve()) for name in asked))


def _load(asked: str, folder: Path) -> str:
    is_path = asked.endswith(".py") or os.sep in asked
    file = (folder / Path(asked).expanduser()).resolve()
    name = file.stem if is_path else asked
    if not all(part.isidentifier() for part in name.split(".")):
        raise SettingsError(f"plugins: '{asked}' is neither the name of a module nor the path of one")
    _add_to_path(Path.cwd())
    here = next((path for path in (folder / f"{name}.py", folder / name) if path.exists()), None)
    if is_path and file.exists():
        here = file
        _add_to_path(file.parent)
    elif here and not _can_be_found(name):
        # Another folder than the current one may be the current one when this is asked for again.
        asked = str(here)
        _add_to_path(folder)
    with _one_line(asked, name):
        module = importlib.import_module(name)
    found = Path(module.__file__ or "").resolve()
    if is_path and file.exists() and file not in (found, found.parent):
        raise SettingsError(f"plug-in '{file}' has the name of another module, '{found}': rename it")
    return str(file) if is_path else asked


def _can_be_found(name: str) -> bool:
    root = name.partition(".")[0]
    return root in sys.modules or importlib.util.find_spec(root) is not None


def _add_to_path(folder: Path) -> None:
    """Last, so that no file there takes the place of a module that others need."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()


@contextmanager
def _one_line(asked: str, name: str, hint: str = "") -> Iterator[None]:
    """Whatever goes wrong in an import is one line. What is registered inside belongs to the plug-in `name`."""
    _importing.append(name)
    try:
        yield
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            words, hint = "there is no such module", "; go to its folder, or name that in PYTHONPATH"
        raise SettingsError(f"plug-in '{asked}' cannot be imported: {words}{hint}") from error
    finally:
        _importing.pop()


@cache
def _load_installed() -> None:
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist else point.name
        with _one_line(point.value, point.module, f"; repair or remove the installed package '{package}'"):
            point.load()
