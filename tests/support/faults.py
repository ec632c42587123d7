"""A disk that gets full, work that hangs, and inputs of any form."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, settings

from foster.errors import FosterError

MANY = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""For property tests: each example writes its own files to the fixture's folder, and a busy machine is no fault."""


def accepted(make: Any) -> Any:
    """What `make` gives, or None if it refuses with an error that the command prints as one line."""
    try:
        return make()
    except FosterError as error:
        message = str(error)
    assert 0 < len(message) < 2000
    return None


def places(data: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value inside nested data."""
    if before:
        yield before
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield from places(value, (*before, key))


@contextmanager
def time_limit(seconds: float = 10.0) -> Iterator[None]:
    """Fail, rather than wait without end, where the work inside hangs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it hangs: nothing came back for {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class FullDisk:
    """In the place of `os.write`: lets `num_whole` writes to files of this name through, and then half of one."""

    def __init__(self, name: str, num_whole: int) -> None:
        self._name = name
        self._num_left = num_whole
        self._write = os.write
        self.has_failed = False

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self._name not in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            return self._write(descriptor, data)
        self._num_left -= 1
        if self._num_left >= 0:
            return self._write(descriptor, data)
        self.has_failed = True
        self._write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
