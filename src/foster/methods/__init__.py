"""Methods, one file each. The table of methods is in settings/methods.py."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from foster.errors import SettingsError
from foster.methods.base import Method
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.plugins import register

MethodClass = TypeVar("MethodClass", bound=type[Method[Any]])


def register_method(name: str, settings: type[MethodSettings] | None = None) -> Callable[[MethodClass], MethodClass]:
    """A decorator that registers a method, a class `Mine(Method[MineSettings])`, under a name.

    ```python
    @foster.register_method("mine")
    class Mine(foster.Method[MineSettings]): ...
    ```

    Give `settings` if the class does not name its settings class, for example because it extends another method.
    """

    def enter(method: MethodClass) -> MethodClass:
        chosen = settings or next(
            (argument for base in getattr(method, "__orig_bases__", ()) for argument in get_args(base)), None
        )
        taken = [MethodSettings, *(known for other, known in METHOD_SETTINGS.items() if other != name)]
        if not (isinstance(chosen, type) and issubclass(chosen, MethodSettings)) or chosen in taken:
            raise SettingsError(
                f"method '{name}' needs a settings class of its own: 'class Mine(Method[MineSettings])', where "
                "'class MineSettings(MethodSettings)', or register_method(name, MineSettings)"
            )
        register("method", METHOD_SETTINGS, name, chosen, method)
        chosen.built_by = method
        return method

    return enter


def method_class(name: str) -> type[Method[Any]]:
    """The class of a method; its module is imported here."""
    built_by = METHOD_SETTINGS[name].built_by
    if not isinstance(built_by, str):
        return built_by
    module, _, attribute = built_by.partition(":")
    kind: type[Method[Any]] = getattr(importlib.import_module(module), attribute)
    return kind
