"""One writer at a time for a folder: a file lock that names its holder and ends with the holder's process."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foster.errors import FolderError
from foster.system.files import explained_write_errors

LOCK = "lock"
MAX_HOLDER_BYTES = 1000


@contextmanager
def locked(folder: Path, name: str = LOCK, *, is_waiting: bool = False) -> Iterator[None]:
    """Hold the lock file `name` in `folder`. A second process is refused with the id and host of the first, or waits.

    The operating system releases the lock when its process ends, so the file of a dead process never blocks.
    """
    from filelock import FileLock, Timeout

    path = folder / name
    lock = FileLock(path, timeout=-1 if is_waiting else 0)
    with explained_write_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise FolderError(f"'{folder}' is being written by {_holder(path)}; wait for it or stop it") from None
    try:
        with explained_write_errors(path):
            path.write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        # Removed while the lock is held: a process that has opened the file meanwhile sees that and tries again.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def writer_of(folder: Path) -> str:
    """The process that holds the folder's lock, such as `process 12 on host`; empty if there is none."""
    from filelock import FileLock, Timeout

    path = folder / LOCK
    if not path.is_file():
        return ""
    try:
        with FileLock(path, timeout=0):
            return ""
    except Timeout:
        return _holder(path)
    except OSError:  # a folder of another user
        return ""


def _holder(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MAX_HOLDER_BYTES))
        return f"process {int(content['process'])} on {content['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
