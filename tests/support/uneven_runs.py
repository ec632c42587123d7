"""Runs of three uneven tasks."""

from pathlib import Path
from typing import Any

from foster.cli.experiments import launch
from foster.settings.experiment import Settings, load_settings

TINY = (
    "dataset=synthetic",
    "synthetic={num_classes=5, train_per_class=10, test_per_class=4, image_size=8}",
    "base_classes=2",
    "increment=2",
    "memory_total=12",
    "batch_size=16",
    "epochs_scale=0.012",
    "device=cpu",
    "engine.threads=1",
)
"""Tasks of 2, 2 and 1 classes: an uneven last task, and fewer than five classes at first."""


def tiny(*overrides: str) -> Settings:
    return load_settings("digits", [*TINY, *overrides])


def run(settings: Settings, path: Path) -> dict[str, Any]:
    return launch(settings, path, quiet=True, is_shown=False)
