"""How many threads to compute with, on a machine that others use, too."""

import os

import torch

from foster.system.memory import num_cores


def use_free_cores() -> str | None:
    """Leave the cores that are busy to others, and say so; None where all are free, or where OMP_NUM_THREADS decides.

    Two threads on one free core wait for each other at every operation, and are several times slower than one.
    """
    if "OMP_NUM_THREADS" in os.environ or not hasattr(os, "getloadavg"):
        return None
    usable = num_cores()
    num_threads = free_cores(usable, os.getloadavg()[0])
    torch.set_num_threads(min(num_threads, torch.get_num_threads()))
    if num_threads == usable:
        return None
    return (
        f"computing on {num_threads} of {usable} cores, since other programs keep this machine busy "
        f"(OMP_NUM_THREADS={usable} takes all)"
    )


def free_cores(usable: int, load: float) -> int:
    """How many cores are left beside programs that keep `load` of them busy; at least one."""
    return max(1, usable - round(load))
