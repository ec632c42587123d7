"""One writer at a time, whatever becomes of it."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foster.errors import FolderError
from foster.system.locking import locked

FORK = multiprocessing.get_context("fork")


def hold(folder: Path, is_held: Callable[[], None]) -> None:
    with locked(folder):
        is_held()
        time.sleep(60)


def test_a_second_process_is_refused_with_the_id_and_host_of_the_first_and_a_dead_one_does_not_block(tmp_path: Path):
    is_held = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, is_held.set))
    process.start()
    try:
        assert is_held.wait(20)
        expected = f"'{tmp_path}' is being written by process {process.pid} on {socket.gethostname()}; wait"
        with pytest.raises(FolderError, match="^" + expected.replace("(", r"\(")), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "lock").exists(), "a killed process cannot clean up"
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_a_second_process_waits_a_moment_for_the_name_of_one_that_has_just_come(tmp_path: Path):
    with locked(tmp_path):
        text = (tmp_path / "lock").read_text()
        (tmp_path / "lock").write_text("")
        threading.Timer(0.02, (tmp_path / "lock").write_text, [text]).start()
        with pytest.raises(FolderError, match=f"by process {os.getpid()} on {socket.gethostname()}; wait"):
            locked(tmp_path).__enter__()


def test_the_lock_is_let_go_when_the_work_fails(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    with locked(tmp_path):
        pass


def test_a_lock_file_that_was_removed_between_opening_and_locking_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without a second look, two processes could each hold the lock of a file that was once at the same path."""
    real_flock, path = fcntl.flock, tmp_path / "lock"
    num_calls = 0

    def slow_flock(descriptor: int, operation: int) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            path.unlink()
        real_flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", slow_flock)
    with locked(tmp_path):
        assert num_calls == 2
        descriptor = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            real_flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_many_threads_that_race_never_hold_the_lock_together(tmp_path: Path):
    num_inside, most_inside, num_held, guard = 0, 0, 0, threading.Lock()

    def race() -> None:
        nonlocal num_inside, most_inside, num_held
        until = time.monotonic() + 1
        while time.monotonic() < until:
            try:
                with locked(tmp_path):
                    with guard:
                        num_inside += 1
                        num_held += 1
                        most_inside = max(most_inside, num_inside)
                    time.sleep(0)
                    with guard:
                        num_inside -= 1
            except FolderError:
                continue

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert num_held > 10
    assert most_inside == 1


def test_a_link_in_place_of_the_lock_does_not_overwrite_what_it_leads_to(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lock").symlink_to(precious)
    with pytest.raises(FolderError, match="cannot write"), locked(folder):
        pass
    assert precious.read_text() == "keep me"


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)


@pytest.mark.usefixtures("no_locks")
def test_where_the_file_system_knows_no_locks_a_living_process_is_found_by_its_id(tmp_path: Path):
    with locked(tmp_path), pytest.raises(FolderError, match=f"process {os.getpid()} on"), locked(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_where_the_file_system_knows_no_locks_a_dead_process_does_not_block(tmp_path: Path):
    process = FORK.Process(target=int)
    process.start()
    process.join()
    (tmp_path / "lock").write_text(json.dumps({"process": process.pid, "host": socket.gethostname()}))
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()


@pytest.mark.usefixtures("no_locks")
def test_where_the_file_system_knows_no_locks_a_process_elsewhere_is_believed(tmp_path: Path):
    (tmp_path / "lock").write_text('{"process": 1, "host": "elsewhere"}')
    expected = f"process 1 on elsewhere; if that process has ended, remove '{tmp_path}/lock'"
    with pytest.raises(FolderError, match=expected), locked(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"process": "x", "host": 1}', "\x00\xff"])
def test_a_lock_file_of_any_content_is_no_obstacle(content: str, tmp_path: Path):
    (tmp_path / "lock").write_text(content, encoding="latin1")
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()
