"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foster.errors import FosterError
    from foster.learner import Learner, load
    from foster.learning.reports import CalibrationWarning, UpdateError

try:
    __version__ = metadata.version("foster-cil")
except metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["CalibrationWarning", "FosterError", "Learner", "UpdateError", "__version__", "load"]

_HOMES = {
    "CalibrationWarning": "foster.learning.reports",
    "FosterError": "foster.errors",
    "Learner": "foster.learner",
    "UpdateError": "foster.learning.reports",
    "load": "foster.learner",
}


def __getattr__(name: str) -> Any:
    """Most public names bring torch with them, so their modules are imported when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foster' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
