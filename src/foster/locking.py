"""One writer at a time for a folder: a lock that ends with its process, however that ends."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foster.errors import FolderError
from foster.files import unwritable


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. A second process is refused with the id and host of the first.

    The operating system lets go of the lock when its process ends, so the file of a dead process never blocks.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (held open for as long as the lock)
    except OSError as error:
        raise unwritable(path, error) from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"'{folder}' is being written by {_holder(path)}; wait for it or stop it") from None
        try:
            handle.truncate(0)
            handle.write(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
            handle.flush()
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['process']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
