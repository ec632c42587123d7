"""Out-of-memory errors as one line, with the setting to lower."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foster.errors import DeviceError, words_of

_CPU_ALLOCATOR = "DefaultCPUAllocator"
_IS_FULL = re.compile(f"out of memory|_ALLOC_FAILED|{_CPU_ALLOCATOR}", re.IGNORECASE)
"""Messages of torch, cuDNN and cuBLAS; not all of these errors have a class of their own."""


@contextmanager
def explained_memory_errors(device: torch.device, batch_size: int | None = None, resume: str = "") -> Iterator[None]:
    """Turn out-of-memory errors into a DeviceError. `batch_size` is that of training, if any. `resume` is the command
    that continues a run, whose batch size cannot change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        shortage = shortage_in(error)
        if shortage is None:
            raise
        is_on_host = isinstance(shortage, MemoryError) or _CPU_ALLOCATOR in str(shortage)
        full = torch.device("cpu") if is_on_host else device
        is_gpu = full.type == "cuda"
        helps = ["device=cpu"] if is_gpu else ["end other programs"]
        if batch_size and is_gpu:
            helps.insert(0, "engine.resident=off (images in the host's memory)")
        if resume:
            helps.append(f"continue the run with: {resume}")
        if batch_size:
            helps.append(f"a lower batch_size (now {batch_size}){' in a new run' if resume else ''}")
        raise DeviceError(f"out of memory on {full}: {words_of(shortage)}; what helps: {', '.join(helps)}") from None


def shortage_in(error: BaseException | None) -> BaseException | None:
    """The out-of-memory error in the chain of causes of `error`; None if there is none."""
    while error is not None:
        is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if is_known or (isinstance(error, RuntimeError) and _IS_FULL.search(str(error))):
            return error
        error = error.__cause__ or error.__context__
    return None
