"""Runs on folders of JPEG photos of mixed sizes and orientations, some of them broken, wherever they are kept."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_folders import write_dataset
from tiny_runs import SMALLER, assert_is_planned, resume, start

from foster import events
from foster.data.photos.store import Decoded, PhotoStore
from foster.errors import DataError
from foster.experiment.folder import RunFolder
from foster.experiment.plan import make_plan
from foster.reports.archive import open_archives
from foster.reports.pictures import exemplar_figure
from foster.settings.experiment import Settings, load_settings
from foster.settings.methods import METHOD_SETTINGS
from foster.system.signals import Stopped, StopRequest

PHOTO_RUN = (
    "dataset=folder",
    "photos.image_size=16",
    "base_classes=2",
    "increment=2",
    "memory_total=none",
    "memory_per_class=4",
    "backbone=resnet8",
    "batch_size=16",
    "augmentation=published",
    "device=cpu",
    "engine.threads=1",
    "checkpoint_minutes=0",
    "epochs_scale=0.012",
)
"""2 tasks of 2 classes with 12 photos each, 2 of which are broken."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("photos") / "data", num_classes=4)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("photos") / "small", num_classes=4, per_class=6, broken=0)


def settings_for(data: Path, *overrides: str, method: str = "foster") -> Settings:
    return load_settings("digits", [*PHOTO_RUN, f"method={method}", *overrides], data=str(data))


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on when and where a run was made."""
    left_out = ("train_seconds", "task_seconds", "settings", "environment")
    return {key: value for key, value in results.items() if key not in left_out}


@pytest.fixture(scope="module")
def told() -> list[events.Event]:
    """What happened in `plain`."""
    return []


@pytest.fixture(scope="module")
def plain(data: Path, told: list[events.Event], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of a run with nothing but defaults."""
    return start(settings_for(data), tmp_path_factory.mktemp("plain") / "run", told.append)


def test_a_run_of_photos_has_the_planned_steps(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", num_classes=3, per_class=7, broken=0)
    settings = settings_for(data, "base_classes=3", "smallest_batch=5", method="finetune")
    told = list[events.Event]()
    results = start(settings, tmp_path / "run", told.append)
    assert_is_planned(make_plan(settings), results, told)
    assert [event.steps for event in told if isinstance(event, events.PhaseStarted)] == [1], "21 photos, 16 in a batch"


def test_photos_in_memory_and_on_disk_give_the_same_run(
    data: Path, plain: dict[str, Any], told: list[events.Event], tmp_path: Path
) -> None:
    warned = [event.message for event in told if isinstance(event, events.Warned)]
    assert any("2 of 24 photos of task" in message for message in warned)
    assert any("1 of 8 photos of the test photos" in message for message in warned)
    assert plain["augmentation"] == "photo-auto"
    cache = tmp_path / "cache"
    on_disk = start(settings_for(data, "engine.resident=disk", f"engine.photo_cache={cache}"), tmp_path / "disk")
    assert numbers(on_disk) == numbers(plain)
    assert list(cache.iterdir()) == []


QUICK = ("foster", "bic", "podnet", "ridge")
"""Of the others, tests/end_to_end/test_all_methods.py has a run each on images of one size."""


@pytest.mark.parametrize(
    "method", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHOD_SETTINGS]
)
def test_every_method_learns_from_photos(method: str, small: Path, tmp_path: Path) -> None:
    short = ("checkpoint_minutes=5", "epochs_scale=0.006")
    results = start(settings_for(small, *short, *SMALLER.get(method, ()), method=method), tmp_path / method)
    assert len(results["accuracy"]) == 2


def test_a_run_on_photos_is_resumed_in_the_middle_with_the_encoded_exemplars(
    data: Path, plain: dict[str, Any], tmp_path: Path
) -> None:
    stop = StopRequest()

    def stop_in_the_last_task(event: events.Event) -> None:
        if isinstance(event, events.EpochEnded) and event.task == 1 and event.phase == "boost":
            stop.set()

    with pytest.raises(Stopped):
        start(settings_for(data), tmp_path / "run", stop_in_the_last_task, stop)
    checkpoint = RunFolder(tmp_path / "run").checkpoints.load(pytest.fail)
    assert checkpoint.parts["memory"].keys() == {"contents", "lengths", "counts"}
    file = next((data / "train").rglob("*.jpg")).read_bytes()
    assert checkpoint.parts["memory"]["contents"][:3].tolist() == list(file[:3])
    assert numbers(resume(tmp_path / "run")) == numbers(plain)
    (archive,) = open_archives([tmp_path / "run"])
    (axes,) = exemplar_figure(archive).axes
    assert axes.get_title(loc="left") == "foster: 16 exemplars"
    assert archive.exemplars().image_size == (16, 16)


def test_a_class_whose_photos_are_all_broken_is_one_clear_line(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", num_classes=4, per_class=3, broken=3)
    with pytest.raises(DataError, match=r"3 photos.*'class 0'"):
        start(settings_for(data), tmp_path / "run")


def test_photos_of_a_finished_task_leave_the_memory(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    num_alive = []
    load, keep = PhotoStore.load, PhotoStore.keep

    def watched_load(self: PhotoStore, numbers: Any) -> None:
        if self.title.startswith("task") and not self.is_loaded.any():
            gc.collect()
            num_alive.append(sum(reference() is not None for reference in held))
        load(self, numbers)

    def watched_keep(self: PhotoStore, piece: Decoded) -> None:
        if self.title.startswith("task"):
            held.append(weakref.ref(piece.pixels))
        keep(self, piece)

    monkeypatch.setattr(PhotoStore, "load", watched_load)
    monkeypatch.setattr(PhotoStore, "keep", watched_keep)
    quick = ("augmentation=none", "checkpoint_minutes=5", "epochs_scale=0.006")
    start(settings_for(small, "base_classes=2", "increment=1", *quick, method="replay"), tmp_path / "run")
    assert num_alive == [0, 0, 0]
