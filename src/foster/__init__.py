"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foster.version import __version__

if TYPE_CHECKING:
    from foster.errors import FosterError
    from foster.learner.learner import Learner, load
    from foster.learner.reports import CalibrationWarning, UpdateError

__all__ = ["CalibrationWarning", "FosterError", "Learner", "UpdateError", "__version__", "load"]

_HOMES = {
    "CalibrationWarning": "foster.learner.reports",
    "FosterError": "foster.errors",
    "Learner": "foster.learner.learner",
    "UpdateError": "foster.learner.reports",
    "load": "foster.learner.learner",
}


def __getattr__(name: str) -> Any:
    """Most public names bring torch with them, so their modules are imported when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foster' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
