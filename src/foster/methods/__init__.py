"""Methods: one file each. The table of methods, with all that others must know of them, is in settings/methods.py."""

import importlib
from typing import Any

from foster.methods.base import Method
from foster.settings.methods import METHOD_SETTINGS


def method_class(name: str) -> type[Method[Any]]:
    """The class of a method, imported when it is asked for."""
    built_by = METHOD_SETTINGS[name].built_by
    if not isinstance(built_by, str):
        return built_by
    module, _, attribute = built_by.partition(":")
    found: type[Method[Any]] = getattr(importlib.import_module(module), attribute)
    return found
