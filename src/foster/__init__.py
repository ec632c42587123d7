"""Class-incremental learning with FOSTER: a classifier that learns new classes and keeps the old ones."""

from importlib import metadata

try:
    __version__ = metadata.version("foster-cil")
except metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
