import shutil
from pathlib import Path

import pytest
from commands import Command, run_main, write_photos
from made_once import made_once

import foster


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`foster` as it is called, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_main(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a bundle that knows three digits."""

    def make(folder: Path) -> None:
        photos = write_photos(folder / "photos", zero=40, one=40, two=40)
        learner = foster.Learner(backbone="resnet8", epochs_scale=0.05, memory_total=60, device="cpu")
        learner.learn(photos)
        learner.save(folder / "v1")

    return made_once(tmp_path_factory, "shelf", make)


@pytest.fixture
def bundle(shelf: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each test."""
    return Path(shutil.copytree(shelf / "v1", tmp_path / "v1"))
