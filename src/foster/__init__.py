"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foster.data.images import ImageSet
    from foster.data.sources import register_dataset
    from foster.data.task import Task
    from foster.door.result import Result, Results, load_results
    from foster.door.run import plan, run
    from foster.errors import DataError, DeviceError, FolderError, FosterError, SettingsError, TrainingError
    from foster.learner.check import check_photos
    from foster.learner.learner import Learner, load
    from foster.learner.reports import CalibrationWarning, UpdateError
    from foster.methods import register_method
    from foster.methods.base import Method
    from foster.networks import register_backbone
    from foster.networks.freezing import freeze
    from foster.networks.network import Backbone
    from foster.settings.fit import FitSettings
    from foster.settings.method import MethodSettings
    from foster.training.phase import Evaluate, Phase
    from foster.version import __version__

__all__ = [
    "Backbone",
    "CalibrationWarning",
    "DataError",
    "DeviceError",
    "Evaluate",
    "FitSettings",
    "FolderError",
    "FosterError",
    "ImageSet",
    "Learner",
    "Method",
    "MethodSettings",
    "Phase",
    "Result",
    "Results",
    "SettingsError",
    "Task",
    "TrainingError",
    "UpdateError",
    "__version__",
    "check_photos",
    "freeze",
    "load",
    "load_results",
    "plan",
    "register_backbone",
    "register_dataset",
    "register_method",
    "run",
]

_NAMES = {
    "foster.door.result": ("Result", "Results", "load_results"),
    "foster.door.run": ("plan", "run"),
    "foster.errors": ("DataError", "DeviceError", "FolderError", "FosterError", "SettingsError", "TrainingError"),
    "foster.learner.check": ("check_photos",),
    "foster.learner.learner": ("Learner", "load"),
    "foster.learner.reports": ("CalibrationWarning", "UpdateError"),
    "foster.methods": ("register_method",),
    "foster.methods.base": ("Method",),
    "foster.networks": ("register_backbone",),
    "foster.networks.freezing": ("freeze",),
    "foster.networks.network": ("Backbone",),
    "foster.data.images": ("ImageSet",),
    "foster.data.sources": ("register_dataset",),
    "foster.data.task": ("Task",),
    "foster.settings.fit": ("FitSettings",),
    "foster.settings.method": ("MethodSettings",),
    "foster.training.phase": ("Evaluate", "Phase"),
    "foster.version": ("__version__",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Most public names bring torch or much else with them, so their modules are imported when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foster' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
