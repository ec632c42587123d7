"""`foster learn` in two processes, as torchrun starts them: the bundle of one, and what happens when one is lost."""

import re
import signal
import time
from pathlib import Path

import pytest
import torch
from crews import crew_of, ended, said_by
from forked import started
from photo_folders import write_photos

from foster.bundle.manifest import read_manifest
from foster.errors import DeviceError
from foster.learner.learner import load
from foster.learner.work_folder import WorkFolder

SETTINGS = (
    "backbone=resnet8",
    "image_size=16",
    "augmentation=plain",
    "preset=paper",
    "validation_share=0.1",
    "memory_total=20",
    "batch_size=8",
    "epochs_scale=0.006",
    "device=cpu",
    "engine.threads=1",
    "engine.statistics=shared",
    *(f"foster.{phase}.learning_rate=0.01" for phase in ("first", "boost", "compress")),
)
"""Small rates: with the usual ones, what rounding differs in grows from step to step."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes in `first`, two more in `second`, and two photos that are cut short."""
    whole = write_photos(tmp_path_factory.mktemp("photos") / "all", 4, 14, broken=2)
    for number in range(4):
        part = whole.parent / ("first" if number < 2 else "second")
        part.mkdir(exist_ok=True)
        (whole / f"class {number}").rename(part / f"class {number}")
    return whole.parent


def words(photos: Path, bundle: Path, *more: str) -> list[str]:
    return ["learn", str(photos), "--bundle", str(bundle), "--quiet", *more]


@pytest.mark.parametrize("trunk", ["none", "2"])
def test_two_processes_learn_the_bundle_of_one(photos: Path, tmp_path: Path, trunk: str) -> None:
    given = [*SETTINGS, f"trunk={trunk}", "image_size=66"]
    both = crew_of(words(photos / "first", tmp_path / "two", *given), tmp_path)
    alone = started(words(photos / "first", tmp_path / "one", *given), tmp_path / "said")
    assert ended([*both, alone]) == [0, 0, 0], (tmp_path / "said-0").read_text()
    one, two = read_manifest(tmp_path / "one"), read_manifest(tmp_path / "two")
    assert two.exemplars == one.exemplars
    assert two.preprocessing == one.preprocessing
    told = ("num_trained", "variants", "trained_from", "epochs", "batch_size")
    assert all(two.history[0].get(key) == one.history[0].get(key) for key in told)
    weights = [load(tmp_path / name).knowledge.network.state_dict() for name in ("one", "two")]  # type: ignore[union-attr]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=1e-4)
    assert not WorkFolder.beside(tmp_path / "two").path.exists()


def test_a_lost_process_stops_the_learn_with_its_name_and_one_goes_on(photos: Path, tmp_path: Path) -> None:
    old, bundle = tmp_path / "old", tmp_path / "new"
    assert ended([started(words(photos / "first", old, *SETTINGS), tmp_path / "said")]) == [0]
    given = words(photos / "second", bundle, "--from", str(old), "checkpoint_minutes=0")
    written = WorkFolder.beside(bundle).checkpoints.folder / "manifest-00000001.json"
    # The second process waits after the first checkpoint, and the first one for it.
    first, second = members = crew_of(given, tmp_path, held_at={1: (written, "")})
    while first.is_alive() and second.is_alive() and not written.exists():
        time.sleep(0.02)
    second.kill()
    assert ended(members) == [DeviceError.exit_code, -signal.SIGKILL], (tmp_path / "said-0").read_text()
    (told,) = said_by(tmp_path, 0)
    assert re.search(r"rank 1 \(process \d+ on .+\) is gone: all 2 processes stop", told)
    assert not bundle.exists()
    goes_on = [word for word in given if word != "--quiet"]
    assert ended([started(goes_on, tmp_path / "said")]) == [0]
    assert "going on where it stopped" in (tmp_path / "said").read_text()
    assert read_manifest(bundle).task_sizes == (2, 2)
