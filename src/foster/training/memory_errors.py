"""A device that is full gets one line with the numbers and what to lower."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foster.errors import DeviceError

GIB = 2**30
_TRIED = re.compile(r"tried to allocate ([\d.]+ \w+)", re.IGNORECASE)
_CPU_IS_FULL = "can't allocate memory"
"""What torch says where the CPU's memory is full; the error has no class of its own."""


@contextmanager
def explained_memory_errors(device: torch.device, batch_size: int) -> Iterator[None]:
    """Turns torch's out-of-memory errors into a DeviceError."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _explained(error, device, batch_size) from None
    except RuntimeError as error:
        if _CPU_IS_FULL not in str(error):
            raise
        raise _explained(error, torch.device("cpu"), batch_size) from None


def _explained(error: Exception, device: torch.device, batch_size: int) -> DeviceError:
    tried = _TRIED.search(str(error))
    facts = [f"tried to allocate {tried.group(1)}"] if tried else []
    advice = f"lower batch_size (now {batch_size})"
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used = torch.cuda.max_memory_allocated(device)
        facts += [f"this run needed up to {used / GIB:.1f} GiB", f"{free / GIB:.1f} of {total / GIB:.1f} GiB are free"]
        advice += ", keep the images off the GPU (engine.resident=off) or use device=cpu"
    return DeviceError(f"out of memory on {device}{': ' if facts else ''}{', '.join(facts)}; {advice}")
