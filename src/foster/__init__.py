"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foster import events as events
    from foster import losses as losses
    from foster.data.feed import Batch as Batch
    from foster.data.images import ImageSet as ImageSet
    from foster.data.sources import register_dataset as register_dataset
    from foster.data.task import Task as Task
    from foster.errors import DataError as DataError
    from foster.errors import DeviceError as DeviceError
    from foster.errors import FolderError as FolderError
    from foster.errors import FosterError as FosterError
    from foster.errors import SettingsError as SettingsError
    from foster.errors import TrainingError as TrainingError
    from foster.experiment.api import plan as plan
    from foster.experiment.api import run as run
    from foster.learner.check import check_photos as check_photos
    from foster.learner.learner import Learner as Learner
    from foster.learner.learner import load as load
    from foster.learner.prediction import CalibrationWarning as CalibrationWarning
    from foster.learner.reports import UpdateError as UpdateError
    from foster.methods import register_method as register_method
    from foster.methods.base import Method as Method
    from foster.networks import register_backbone as register_backbone
    from foster.networks.modules import freeze as freeze
    from foster.networks.network import Backbone as Backbone
    from foster.reports.api import Result as Result
    from foster.reports.api import Results as Results
    from foster.reports.api import load_results as load_results
    from foster.settings.fit import FitSettings as FitSettings
    from foster.settings.method import MethodSettings as MethodSettings
    from foster.training.phase import Evaluate as Evaluate
    from foster.training.phase import Phase as Phase
    from foster.training.step import gradients as gradients
    from foster.version import __version__ as __version__

_NAMES = {
    "foster.reports.api": ("Result", "Results", "load_results"),
    "foster.experiment.api": ("plan", "run"),
    "foster.errors": ("DataError", "DeviceError", "FolderError", "FosterError", "SettingsError", "TrainingError"),
    "foster.learner.check": ("check_photos",),
    "foster.learner.learner": ("Learner", "load"),
    "foster.learner.prediction": ("CalibrationWarning",),
    "foster.learner.reports": ("UpdateError",),
    "foster.methods": ("register_method",),
    "foster.methods.base": ("Method",),
    "foster.networks": ("register_backbone",),
    "foster.networks.modules": ("freeze",),
    "foster.networks.network": ("Backbone",),
    "foster.data.feed": ("Batch",),
    "foster.data.images": ("ImageSet",),
    "foster.data.sources": ("register_dataset",),
    "foster.data.task": ("Task",),
    "foster.settings.fit": ("FitSettings",),
    "foster.settings.method": ("MethodSettings",),
    "foster.training.phase": ("Evaluate", "Phase"),
    "foster.training.step": ("gradients",),
    "foster.version": ("__version__",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MODULES = ("events", "losses")
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used, because most of these modules import torch."""
    if name in _MODULES:
        return import_module(f"foster.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'foster' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
