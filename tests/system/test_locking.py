"""One writer at a time, however its process ends."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foster.errors import FolderError
from foster.system.locking import locked, writer_of

FORK = multiprocessing.get_context("fork")


def hold(folder: Path, is_held: Callable[[], None]) -> None:
    with locked(folder):
        is_held()
        time.sleep(60)


def test_a_second_process_is_refused_with_the_id_and_host_of_the_first_and_a_dead_one_does_not_block(
    tmp_path: Path,
) -> None:
    is_held = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, is_held.set))
    process.start()
    try:
        assert is_held.wait(20)
        holder = f"process {process.pid} on {socket.gethostname()}"
        assert writer_of(tmp_path) == holder
        with pytest.raises(FolderError) as refused, locked(tmp_path):
            pass
        assert str(tmp_path) in str(refused.value)
        assert holder in str(refused.value)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert writer_of(tmp_path) == ""
    with locked(tmp_path):
        assert writer_of(tmp_path) == f"process {os.getpid()} on {socket.gethostname()}"
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_lock_does_not_overwrite_its_target(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lock").symlink_to(precious)
    with pytest.raises(FolderError, match="cannot write"), locked(folder):
        pass
    assert precious.read_text() == "keep me"
