"""A bundle that is written, changed or promoted while something goes wrong: it stays whole, and nothing is lost."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from faults import FullDisk

import foster
from foster.bundle.manifest import read_manifest
from foster.bundle.promotion import promote, rollback
from foster.errors import FolderError
from foster.system.locking import locked

FORK = multiprocessing.get_context("fork")


def exemplar_ids(bundle: Path) -> list[str]:
    """The ids of the exemplars of the first class, each once."""
    entries = read_manifest(bundle).exemplars
    return list(dict.fromkeys(entry.id for entry in entries if entry.use == "exemplars" and entry.class_id == 0))


def image_names(bundle: Path) -> set[str]:
    return {str(path.relative_to(bundle)) for path in bundle.rglob("*.png")}


@pytest.mark.parametrize(
    ("name", "num_whole"),
    [("network.safetensors", 0), ("labels.txt", 0), (".png", 0), (".png", 5), ("bundle.json", 0)],
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


def both_at_once(actions: Sequence[Callable[[], object]]) -> None:
    """Each action in a process of its own; where another one is writing, it waits, as the message says."""
    start = FORK.Barrier(len(actions))

    def act(action: Callable[[], object]) -> None:
        start.wait(20)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                action()
                return
            except FolderError as error:
                if "is being written by" not in str(error):
                    raise

    processes = [FORK.Process(target=act, args=(action,)) for action in actions]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0


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


def test_of_two_processes_that_promote_at_once_one_is_current_and_the_other_previous(
    small_bundle: Path, tmp_path: Path
) -> None:
    names: Sequence[str] = ("v1", "v2")
    for name in names:
        foster.load(small_bundle, device="cpu").save(tmp_path / name)
    for _ in range(3):
        both_at_once([partial(promote, tmp_path / name) for name in names])
        links = [tmp_path / "current", tmp_path / "previous"]
        assert sorted(link.readlink().name for link in links) == sorted(names)
        for link in links:
            link.unlink()
