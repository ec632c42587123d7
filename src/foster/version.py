"""The version of the installed package."""

from importlib import metadata

try:
    __version__ = metadata.version("foster-cil")
except metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
