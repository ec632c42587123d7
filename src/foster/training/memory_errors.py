"""A GPU that is full gets one line with the numbers and what to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foster.errors import DeviceError

GIB = 2**30


@contextmanager
def explained_memory_errors(device: torch.device, batch_size: int) -> Iterator[None]:
    """Turns torch's out-of-memory error into a DeviceError."""
    try:
        yield
    except torch.OutOfMemoryError:
        free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (0, 0)
        used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        raise DeviceError(
            f"out of memory on {device}: this run needed more than {used / GIB:.1f} GiB, {free / GIB:.1f} of "
            f"{total / GIB:.1f} GiB are free; lower batch_size (now {batch_size}) or use device=cpu"
        ) from None
