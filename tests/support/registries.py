"""What tests register is forgotten afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from foster.networks import BACKBONES
from foster.settings import plugins
from foster.settings.datasets import CATALOGUE
from foster.settings.methods import METHOD_SETTINGS

TABLES = (METHOD_SETTINGS, CATALOGUE, BACKBONES, plugins._ORIGINS)


@contextmanager
def registries_kept() -> Iterator[None]:
    """Inside, methods, datasets and backbones may be registered."""
    before = [dict(table) for table in TABLES]
    try:
        yield
    finally:
        for table, old in zip(TABLES, before, strict=True):
            table.clear()
            table.update(old)
