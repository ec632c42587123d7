"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foster.learner import Learner, load

try:
    __version__ = metadata.version("foster-cil")
except metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["Learner", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`foster.Learner` and `foster.load` bring torch with them, so they are imported when they are first used."""
    if name not in ("Learner", "load"):
        raise AttributeError(f"module 'foster' has no attribute '{name}'")
    from foster import learner

    return getattr(learner, name)
