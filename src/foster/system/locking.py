"""One writer at a time for a folder: a lock that ends with its process, however that ends."""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from foster.errors import FolderError
from foster.system.files import write_all, written

LOCK = "lock"
NUM_LOOKS, SECONDS_BETWEEN_LOOKS = 5, 0.01
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class HeldError(FolderError):
    """Another process holds the lock."""


class _Holder(NamedTuple):
    """Who wrote the lock file last."""

    process: int
    host: str

    @property
    def may_live(self) -> bool:
        """False only where it is certain that the process has ended."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.process, 0)
        except (OSError, OverflowError) as error:
            return not isinstance(error, ProcessLookupError)
        return True

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


@contextmanager
def locked(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the folder's lock. A second process is refused with the id and host of the first.

    The operating system lets go of the lock when its process ends, so the file of a dead process never blocks. On a
    file system that knows no locks, the process that the file names is looked up instead. `name` is that of the lock's
    file, which is overwritten and removed: in a folder that is not ours, one that nobody else would choose.
    """
    path = folder / name
    with written(path):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _acquired(path)
    try:
        with written(path):
            os.ftruncate(descriptor, 0)
            write_all(descriptor, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())
        yield
    finally:
        # Removed while the lock is held: who has opened this file meanwhile finds that it is not the lock any more.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def writer_of(folder: Path) -> str:
    """The process that holds the folder's lock, such as `process 12 on host`; empty where there is none."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(_holder(descriptor) or "another process")
    except OSError:
        # A file system without locks: whoever wants to write finds out.
        return ""
    finally:
        os.close(descriptor)
    return ""


def _acquired(path: Path) -> int:
    """A descriptor of the lock file at `path`, with the lock held."""
    while True:
        # A link could lead to a file outside the folder, which would then be overwritten.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            _take(descriptor, path)
            if _is_still(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        if error.errno in _HELD:
            # Who has just taken the lock writes its name into the file only then.
            for _ in range(NUM_LOOKS if holder is None else 0):
                time.sleep(SECONDS_BETWEEN_LOOKS)
                holder = holder or _holder(descriptor)
            name = holder or "another process"
            raise HeldError(f"'{path.parent}' is being written by {name}; wait for it or stop it") from None
        if holder and holder.may_live:
            raise HeldError(
                f"'{path.parent}' is being written by {holder}; if that process has ended, remove '{path}'"
            ) from None


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether `path` is still the file that was locked: its last holder may have removed it in between."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> _Holder | None:
    try:
        content = json.loads(os.pread(descriptor, 1000, 0))
        return _Holder(int(content["process"]), str(content["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
