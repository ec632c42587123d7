"""Out-of-memory errors as one line, with the sizes and the setting to lower."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from foster.errors import DeviceError

GIB = 2**30
_CPU_ALLOCATOR = "DefaultCPUAllocator"  # "can't allocate memory" on x86, "not enough memory" on ARM
_IS_FULL = re.compile(f"out of memory|_ALLOC_FAILED|{_CPU_ALLOCATOR}", re.IGNORECASE)
"""Messages of torch, cuDNN and cuBLAS; not all of these errors have a class of their own."""

_TRIED = re.compile(r"(?:tried|unable) to allocate ([\d.]+ \w+)", re.IGNORECASE)

_ADVICE = {
    ("cpu", "training"): "lower batch_size (now {})",
    ("cuda", "training"): "lower batch_size (now {}), keep the images off the GPU (engine.resident=off) or use "
    "device=cpu",
    ("cpu", "run"): "end other programs and continue: {1}; a lower batch_size (now {0}) needs a new run",
    ("cuda", "run"): "continue with the images off the GPU: {1} engine.resident=off, or with device=cpu; "
    "a lower batch_size (now {0}) needs a new run",
    ("cpu", "elsewhere"): "end other programs, or give fewer images at a time",
    ("cuda", "elsewhere"): "use device=cpu",
}
"""Advice for each kind of device: in training, in a run that can be resumed, and elsewhere."""


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
        advice = _ADVICE[full.type, ("run" if resume else "training") if batch_size else "elsewhere"]
        facts = _facts(shortage, full)
        raise DeviceError(
            f"out of memory on {full}{': ' if facts else ''}{', '.join(facts)}; {advice.format(batch_size, resume)}"
        ) from None


def shortage_in(error: BaseException | None) -> BaseException | None:
    """The out-of-memory error in the chain of causes of `error`; None if there is none."""
    while error is not None:
        is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if is_known or (isinstance(error, RuntimeError) and _IS_FULL.search(str(error))):
            return error
        error = error.__cause__ or error.__context__
    return None


def _facts(shortage: BaseException, device: torch.device) -> list[str]:
    tried = _TRIED.search(str(shortage))
    facts = [f"tried to allocate {tried.group(1)}"] if tried else []
    if device.type == "cuda":
        with suppress(RuntimeError):  # a failed device may not answer
            used = torch.cuda.max_memory_allocated(device)
            free, total = torch.cuda.mem_get_info(device)
            facts.append(f"this run needed up to {used / GIB:.1f} GiB")
            facts.append(f"{free / GIB:.1f} of {total / GIB:.1f} GiB are free")
    return facts
