"""The main memory of this machine or container, and the cores of this process."""

import os
from contextlib import suppress
from pathlib import Path

LIMITS_OF_CONTAINERS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The memory limit of a container in bytes, or `max`: cgroups version 2 and 1."""


def main_memory() -> int:
    """The size of the main memory in bytes, or the limit of the container if it is lower."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS_OF_CONTAINERS:
        with suppress(OSError, ValueError):
            sizes.append(int(path.read_text()))
    return min(sizes)


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
