"""How many threads to compute with, on a machine that others use, too."""

import os
import time
from contextlib import suppress
from pathlib import Path

import torch

from foster.system.memory import num_cores

STATISTICS = Path("/proc/stat")
LOOK_SECONDS = 0.2
WORTH_TELLING = 0.75
"""Of all cores: who computes on more of them is hardly slower for it."""


def use_free_cores() -> str | None:
    """Leave the cores that are busy to others, and say so; None where hardly one is, or where OMP_NUM_THREADS decides.

    Two threads on one free core wait for each other at every operation, and are several times slower than one.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return None
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # on Windows, and where /proc is not there
        return None
    usable = num_cores()
    num_threads = free_cores(usable, load)
    if num_threads < usable:
        # A training of ours that has just ended still counts in the load of the last minute.
        num_threads = free_cores(usable, min(load, busy_cores()))
    torch.set_num_threads(min(num_threads, torch.get_num_threads()))
    if num_threads > WORTH_TELLING * usable:
        return None
    return (
        f"computing on {num_threads} of {usable} cores, since other programs keep this machine busy "
        f"(OMP_NUM_THREADS={usable} takes all)"
    )


def free_cores(usable: int, load: float) -> int:
    """How many cores are left beside programs that keep `load` of them busy; at least one."""
    return max(1, usable - round(load))


def busy_cores() -> float:
    """How many of the cores that this process may use are busy at this moment; all that there are where none says."""
    before = _times()
    time.sleep(LOOK_SECONDS)
    if not (after := _times()) or after.keys() != before.keys():
        return float(num_cores())
    passed = [(after[core][0] - before[core][0], after[core][1] - before[core][1]) for core in after]
    return sum(busy / on for busy, on in passed if on)


def _times() -> dict[str, tuple[int, int]]:
    """Of each core that this process may use, how long it was busy and how long it has been on; none but on Linux."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
    by_core = {}
    with suppress(OSError, ValueError):
        for name, *fields in map(str.split, STATISTICS.read_text().splitlines()):
            if name in cores:
                times = [int(field) for field in fields[:8]]
                by_core[name] = sum(times) - times[3] - times[4], sum(times)  # the fourth and fifth are idle
    return by_core
