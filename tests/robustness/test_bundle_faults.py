"""A bundle that is written, changed or promoted while something goes wrong: it stays whole, and nothing is lost."""

import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from full_disk import FullDisk

import foster
from foster.bundle.folder import read_bundle, remove_exemplars
from foster.bundle.manifest import read_manifest
from foster.bundle.promotion import promote, rollback
from foster.errors import DataError, FolderError
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
    with pytest.raises(FolderError, match=r"No space left on device; nothing that was complete is lost$"):
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


def test_a_second_process_is_refused_while_images_are_removed(bundle: Path) -> None:
    before = (bundle / "bundle.json").read_bytes()
    with locked(bundle), pytest.raises(FolderError, match=f"by process {os.getpid()} on {socket.gethostname()}"):
        remove_exemplars(bundle, exemplar_ids(bundle)[:1])
    assert (bundle / "bundle.json").read_bytes() == before
    remove_exemplars(bundle, exemplar_ids(bundle)[:1])
    assert not (bundle / "lock").exists()


def die_at_the_first_deletion(bundle: Path, wanted: str) -> None:
    Path.unlink = lambda path, missing_ok=False: os._exit(9)  # type: ignore[method-assign]
    remove_exemplars(bundle, [wanted])


def test_a_removal_that_is_killed_before_it_deletes_is_finished_by_the_next(bundle: Path) -> None:
    first, second = exemplar_ids(bundle)[:2]
    process = FORK.Process(target=die_at_the_first_deletion, args=(bundle, first))
    process.start()
    process.join(30)
    assert process.exitcode == 9
    read_bundle(bundle)
    assert any(first in name for name in image_names(bundle)), "the image is no longer listed, but still there"
    removed = remove_exemplars(bundle, [first, second])
    assert {entry.id for entry in removed} == {first, second}
    assert not any(wanted in name for name in image_names(bundle) for wanted in (first, second))
    read_bundle(bundle)


@pytest.fixture
def as_an_ordinary_user(bundle: Path) -> Iterator[Path]:
    """A bundle of somebody whom permissions bind."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        moved = bundle.rename(place / "v1")
        for path in (place, *place.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        if is_root:
            try:
                os.seteuid(65534)
            except OSError:
                pytest.skip("root cannot act as an ordinary user here")
        try:
            yield moved
        finally:
            if is_root:
                os.seteuid(0)
            for path in (place, *place.rglob("*")):
                path.chmod(0o777)


def _as_owner(folder: Path, mode: int) -> None:
    user = os.geteuid()
    if user == 65534:
        os.seteuid(0)
    folder.chmod(mode)
    if user == 65534:
        os.seteuid(user)


def test_a_bundle_that_may_not_be_written_gives_one_line_and_is_not_changed(as_an_ordinary_user: Path) -> None:
    bundle = as_an_ordinary_user
    _as_owner(bundle, 0o555)
    before = (bundle / "bundle.json").read_bytes()
    with pytest.raises(FolderError, match=r"^cannot write '.*lock': Permission denied"):
        remove_exemplars(bundle, exemplar_ids(bundle)[:1])
    assert (bundle / "bundle.json").read_bytes() == before


def test_what_is_no_bundle_gets_no_lock(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError):
            remove_exemplars(folder, ["abc"])
    assert list(tmp_path.iterdir()) == []


def test_removing_deletes_no_file_outside_the_bundle_and_none_that_is_not_ours(bundle: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (bundle / "exemplars" / "0000").rename(outside)
    (bundle / "exemplars" / "0000").symlink_to(outside)
    mine = bundle / "held-out" / "0000" / "my own.png"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_bytes(b"x")
    before = {path.name for path in outside.iterdir()}
    with pytest.raises(FolderError, match="a link leads out of the bundle"):
        remove_exemplars(bundle, exemplar_ids(bundle)[:1])
    assert {path.name for path in outside.iterdir()} == before
    assert mine.exists()


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
    history = json.loads((tmp_path / "current.json").read_bytes())["promoted"]
    assert history[-1]["bundle"] == (tmp_path / "current").readlink().name != "v1"
    assert {path.name for path in tmp_path.iterdir()} == {"v0", "v1", "v2", "current", "current.json"}


def test_two_processes_that_promote_at_once_both_stand_in_the_history(small_bundle: Path, tmp_path: Path) -> None:
    names: Sequence[str] = ("v1", "v2")
    for name in names:
        foster.load(small_bundle, device="cpu").save(tmp_path / name)
    for _ in range(3):
        both_at_once([partial(promote, tmp_path / name) for name in names])
        found = [entry["bundle"] for entry in json.loads((tmp_path / "current.json").read_bytes())["promoted"]]
        assert sorted(found) == sorted(names)
        assert found[-1] == (tmp_path / "current").readlink().name
        (tmp_path / "current").unlink()
        (tmp_path / "current.json").unlink()
