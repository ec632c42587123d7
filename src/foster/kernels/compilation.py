"""Checks whether kernels can run, starts them, and compiles them: each at its first use, or many in parallel."""

import functools
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor


def is_available() -> bool:
    """Whether the kernels can run on the current GPU: this needs bfloat16 tensor cores and a Triton with Gluon."""
    return torch.cuda.is_available() and _runs_on(torch.cuda.current_device())


@functools.cache
def _runs_on(gpu: int) -> bool:
    if torch.version.hip or torch.cuda.get_device_capability(gpu) < (8, 0):
        return False
    try:
        importlib.import_module("foster.kernels.device")
    except (ImportError, AttributeError):
        return False
    return True


class _Start(NamedTuple):
    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


_noted: dict[int, dict[tuple[Any, ...], _Start]] = {}
"""For each GPU on which `compiled_side_by_side` is active: the first launch of each kernel that must be compiled. The
key is the GPU, not the thread: backward passes run in other threads, one for each GPU."""


def start(name: str, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch the kernel `name` of `foster.kernels.device` with `grid` programs; at its first use it is compiled.

    From compute capability 9 on, programmatic dependent launch is used: the programs are placed on the chip while the
    previous kernel still runs. Each kernel therefore begins with a wait for the results of the previous one
    (`gdc_wait`).
    """
    from foster.kernels import device  # needs Triton

    kernel, gpu = getattr(device, name), _gpu()
    options["is_early"] = _starts_early(gpu)
    if options["is_early"]:
        options["launch_pdl"] = True
    noted = _noted.get(gpu)
    if noted is None:
        kernel[grid](*arguments, **options)
        return
    noted.setdefault((id(kernel), _type(arguments), *options.items()), _Start(kernel, grid, arguments, options))


def _type(value: Any) -> Any:
    """The type of an argument. A kernel is compiled for each combination of types."""
    if isinstance(value, tuple):
        return tuple(map(_type, value))
    return value.dtype if isinstance(value, Tensor) else type(value)


@contextmanager
def compiled_side_by_side() -> Iterator[None]:
    """Inside, kernels do not run on the current GPU. Their launches are recorded, and at the end all kernels are
    compiled in parallel.

    Results that are computed inside are meaningless. This is used before the first step: compiled one after another,
    the kernels of a network take half a minute. Compiled kernels stay in Triton's cache on the disk.
    """
    gpu = _gpu()
    noted = _noted[gpu] = {}
    try:
        yield
    finally:
        del _noted[gpu]
    if noted:
        _compile(list(noted.values()))


def _gpu() -> int:
    return torch.cuda.current_device() if _has_gpu() else -1


@functools.cache
def _has_gpu() -> bool:
    return torch.cuda.is_available()  # cached: the query takes as long as a kernel launch


@functools.cache
def _starts_early(gpu: int) -> bool:
    return gpu >= 0 and torch.cuda.get_device_capability(gpu) >= (9, 0)


def _compile(starts: list[_Start]) -> None:
    mode = getattr(importlib.import_module("triton"), "AsyncCompileMode", None)
    if mode is None:
        return  # Older versions of Triton compile each kernel at its first use.
    with ThreadPoolExecutor() as threads, mode(threads):
        for kernel, grid, arguments, options in starts:
            kernel.warmup(*arguments, grid=grid, **options)
