"""Plug-ins: modules from outside that register methods, datasets and backbones when they are imported.

Importing a module runs it, so the user must have named it: in a settings file of their own, on the command line, or in
Python. A plug-in is never imported only because a run folder or a bundle names it.
"""

import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from foster.errors import SettingsError, short, words_of
from foster.system.files import sha256, user_path

Kind = Literal["method", "dataset", "backbone"]
Thing = TypeVar("Thing")


class Origin(NamedTuple):
    """The origin of a registered name: the plug-in, and the class or function in it."""

    plugin: str
    maker: str


_ORIGINS: dict[tuple[Kind, str], Origin] = {}
"""The origin of every name that a plug-in registered."""
_HASHES: dict[str, str] = {}
"""The hash of each plug-in's files when it was imported, by its module."""
_importing: list[str] = []


def register(kind: Kind, table: MutableMapping[str, Thing], name: str, thing: Thing, maker: Any) -> None:
    """Add `thing` to a table of names; `maker` is the class or function that makes it.

    A name that the same class or function registered before is replaced: a cell of a notebook may run again.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise SettingsError(f"'{name}' cannot be the name of a {kind}: use a-z, 0-9, - and _, and begin with a letter")
    plugin = _importing[-1] if _importing else maker.__module__
    origin = Origin(plugin, f"{maker.__module__}.{getattr(maker, '__qualname__', name)}")
    there = _ORIGINS.get((kind, name))
    if name in table and (there is None or there.maker != origin.maker):
        owner = f"plug-in '{there.plugin}'" if there else "foster itself"
        raise SettingsError(f"there is a {kind} '{name}' already, from {owner}; register yours under another name")
    table[name] = thing
    _ORIGINS[kind, name] = origin
    _note_hash(plugin)


def is_registered(kind: Kind, name: str) -> bool:
    return (kind, name) in _ORIGINS


def plugins_of(names: Mapping[Kind, str]) -> tuple[str, ...]:
    """The modules of the plug-ins that these names come from."""
    plugins = [_ORIGINS[kind, name].plugin for kind, name in names.items() if is_registered(kind, name)]
    return tuple(dict.fromkeys(plugins))


def needed_plugins(plugins: Iterable[str], names: Mapping[Kind, str]) -> tuple[str, ...]:
    """Those of the `plugins` that registered one of the `names`, or that registered nothing."""
    used, registering = plugins_of(names), {origin.plugin for origin in _ORIGINS.values()}
    return tuple(each for each in plugins if _module_name(each) in used or _module_name(each) not in registering)


def plugin_hashes(plugins: Iterable[str], names: Mapping[Kind, str]) -> dict[str, str]:
    """The SHA-256 of the files of each of the `plugins`, and of those that the `names` come from, by module.

    A script or a notebook that registers something itself has no hash: it is edited from run to run.
    """
    modules = dict.fromkeys((*map(_module_name, plugins), *plugins_of(names)))
    return {module: _HASHES[module] for module in modules if module in _HASHES}


def check_imported(names: Iterable[str], owner: str, trusted_by: str = "") -> tuple[str, ...]:
    """Raise SettingsError if a plug-in is not imported yet: a stranger's file must not cause an import.

    `trusted_by` names further ways to allow the import, for the message. Returns the same as `load_plugins`.
    """
    modules = {name: _module_name(name) for name in names}
    for name, module in modules.items():
        if module not in sys.modules:
            raise SettingsError(
                f"{owner} needs the plug-in {name[-200:]!r}; if you trust it, name it with --plugin {module}"
                f"{trusted_by} (from Python: import {module} first)"
            )
    return load_plugins(list(modules.values()))


def load_plugins(plugins: Sequence[str], folder: Path | None = None) -> tuple[str, ...]:
    """Import plug-ins: modules, or paths of files and packages.

    Modules are searched for on `sys.path`, in the current folder and in `folder`, the folder of the settings file;
    paths are relative to `folder`. Returns a name or path of each that works from any folder.
    """
    return tuple(dict.fromkeys(_load(name, (folder or Path()).resolve()) for name in plugins))


def _load(plugin: str, folder: Path) -> str:
    """Import one plug-in. Returns its name, or its path if the name works in some folders only."""
    name = _module_name(plugin)
    file = (folder / user_path(plugin)).resolve() if _is_path(plugin) else None
    is_there = file is not None and file.exists()
    for place in ([file.parent] if file and is_there else []) + [Path.cwd(), folder]:
        if str(place) not in sys.path:
            sys.path.append(str(place))  # last, so that no file in it hides another module
    importlib.invalidate_caches()
    with _one_line(plugin, name):
        is_new = name not in sys.modules
        origin = importlib.import_module(name).__file__
    if is_there and _own_path(origin) != file:
        raise SettingsError(f"plug-in '{file}' has the name of another module, '{origin or name}': rename it")
    if is_new or name not in _HASHES:
        _note_hash(name)
    is_known_by_name = origin is None or "." in name or _is_installed(_own_path(origin))
    return plugin if is_known_by_name and not file else str(_own_path(origin))


def _own_path(origin: str | None) -> Path:
    """The file of a module, or the folder of a package."""
    file = Path(origin or "").resolve()
    return file.parent if file.name == "__init__.py" else file


def _is_installed(path: Path) -> bool:
    """Whether a module is installed, so that its name works from any folder."""
    standard = [Path(sysconfig.get_path(key)).resolve() for key in ("stdlib", "purelib", "platlib")]
    return any(map(path.is_relative_to, standard)) or any(path.parent.glob("*.dist-info"))


def _is_path(name: str) -> bool:
    return name.endswith(".py") or os.sep in name


def _module_name(plugin: str) -> str:
    return Path(plugin).stem if _is_path(plugin) else plugin


def _note_hash(module: str) -> None:
    """Store the hash of a plug-in's file, or of all files of its package."""
    root = module.partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    if file is None or root == "__main__":
        return
    path = _own_path(file)
    sources = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    hashes = [(source.name, sha256(source.read_bytes())) for source in sources]
    _HASHES[module] = sha256(repr(hashes).encode())


@contextmanager
def _one_line(plugin: str, name: str) -> Iterator[None]:
    """Turn an error of an import into one line. Names that are registered inside belong to the plug-in `name`."""
    _importing.append(name)
    try:
        yield
    except (Exception, SystemExit) as error:
        failed = f"plug-in {short(plugin)} cannot be imported"
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            hint = "go to its folder, or name its file (--plugin FILE)"
            raise SettingsError(f"{failed}: there is no such module; {hint}") from error
        raise SettingsError(f"{failed}: {type(error).__name__}: {words_of(error)}") from error
    finally:
        _importing.pop()
