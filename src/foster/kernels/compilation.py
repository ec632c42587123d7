"""Whether kernels can run, how they are started, and how they are compiled: one by one when first used, or many at a
time."""

import functools
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor


def is_available() -> bool:
    """Whether the kernels can run on the current GPU: it needs bfloat16 tensor cores, and a Triton that has Gluon."""
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
"""By GPU, while `compiled_side_by_side` is active there: the first start of each kernel to be compiled. Not by thread:
backward passes run in other threads, one for each GPU."""


def start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run `kernel` on the device for every program of `grid`; it is compiled first where it was not yet.

    On recent GPUs its programs are placed on the chip while the kernel before it ends (programmatic dependent launch).
    Each of our kernels therefore begins by waiting for the results of the kernel before it.
    """
    gpu = _gpu()
    options["is_early"] = _starts_early(gpu)
    if options["is_early"]:
        options["launch_pdl"] = True
    noted = _noted.get(gpu)
    if noted is None:
        kernel[grid](*arguments, **options)
        return
    noted.setdefault((id(kernel), _type(arguments), *options.items()), _Start(kernel, grid, arguments, options))


def _type(value: Any) -> Any:
    """The types of an argument, which are compiled into a kernel."""
    if isinstance(value, tuple):
        return tuple(map(_type, value))
    return value.dtype if isinstance(value, Tensor) else type(value)


@contextmanager
def compiled_side_by_side() -> Iterator[None]:
    """Inside, kernels do not run on the current GPU: they are noted, and all are compiled at the end, many at a time.

    Results that are computed inside are meaningless. It is used before the first step: one by one, the kernels of a
    network take half a minute to compile. Compiled kernels stay in Triton's cache on the disk.
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
    return torch.cuda.is_available()  # asked once: it takes as long as starting a kernel


@functools.cache
def _starts_early(gpu: int) -> bool:
    return gpu >= 0 and torch.cuda.get_device_capability(gpu) >= (9, 0)


def _compile(starts: list[_Start]) -> None:
    mode = getattr(importlib.import_module("triton"), "AsyncCompileMode", None)
    if mode is None:
        return  # An older Triton compiles each kernel where it is first used.
    with ThreadPoolExecutor() as threads, mode(threads):
        for kernel, grid, arguments, options in starts:
            kernel.warmup(*arguments, grid=grid, **options)
