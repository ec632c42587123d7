"""A disk that gets full in the middle of a write."""

import errno
import os
from pathlib import Path


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
