"""A bundle that is written, changed or promoted while something goes wrong: it stays whole, and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import FullDisk

import foster
from foster.bundle.promotion import promote, rollback
from foster.errors import FolderError
from foster.system.locking import locked


@pytest.mark.parametrize(
    ("name", "num_whole"),
    [("network.safetensors", 0), ("labels.txt", 0), ("photos.zip", 0), ("bundle.json", 0)],
)
def test_a_disk_that_is_full_leaves_no_part_of_a_bundle_and_the_learner_can_save_again(
    name: str, num_whole: int, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, disk = foster.load(bundle, device="cpu"), FullDisk(name, num_whole)
    monkeypatch.setattr("os.write", disk)
    with pytest.raises(FolderError, match="No space left on device"):
        learner.save(tmp_path / "v2")
    assert disk.has_failed
    assert {path.name for path in tmp_path.iterdir()} == {"v1"}
    monkeypatch.undo()
    learner.save(tmp_path / "v2")
    assert {path.name: path.read_bytes() for path in bundle.rglob("*.*")} == {
        path.name: path.read_bytes() for path in (tmp_path / "v2").rglob("*.*")
    }


@pytest.mark.parametrize("move", [lambda place: promote(place / "v2"), lambda place: rollback(place)])
def test_the_link_is_moved_by_one_process_at_a_time(move: Callable[[Path], object], small_bundle: Path, tmp_path: Path):
    for name in ("v0", "v1", "v2"):
        foster.load(small_bundle, device="cpu").save(tmp_path / name)
    promote(tmp_path / "v0")
    promote(tmp_path / "v1")
    with locked(tmp_path, ".current.lock"), pytest.raises(FolderError, match=f"by process {os.getpid()} on"):
        move(tmp_path)
    assert (tmp_path / "current").readlink() == Path("v1")
    move(tmp_path)
    assert (tmp_path / "current").readlink() != Path("v1")
    assert {path.name for path in tmp_path.iterdir()} - {"previous"} == {"v0", "v1", "v2", "current"}
