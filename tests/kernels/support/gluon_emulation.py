"""Runs Gluon and Triton kernels on the CPU, one program after the other, with PyTorch tensors in place of registers.

Layouts say which thread holds which element and do not change a result, so here they are nothing. What is tested is all
the rest: indices, borders, the renaming of channels and pixels, the order of grids and the host code around. That
layouts fit is the compiler's to check (`assert_trivial`), and the tests on a GPU run the compiled kernels.
"""

import builtins
import itertools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import foster.kernels

_program: tuple[int, int, int] = (0, 0, 0)
_num_programs: tuple[int, int, int] = (1, 1, 1)


@dataclass
class Pointers:
    """Places in a tensor's memory, as Gluon's pointer tensors are."""

    memory: Tensor
    places: Any = 0

    def __add__(self, offset: Any) -> "Pointers":
        return Pointers(self.memory, self.places + offset)

    @property
    def dtype(self) -> SimpleNamespace:
        return SimpleNamespace(element_ty=self.memory.dtype)


@dataclass
class SharedMemory:
    values: Tensor

    def load(self, layout: object) -> Tensor:
        return self.values


class Kernel:
    """`kernel[grid](...)` runs all programs; `kernel(...)` is a call from inside another kernel."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, num_warps: int, enable_fp_fusion: bool = True, **options: Any) -> None:
            global _program, _num_programs
            _num_programs = (*grid, 1, 1)[:3]  # type: ignore[assignment]
            for program in itertools.product(*(range(size) for size in _num_programs)):
                _program = program  # type: ignore[assignment]
                self.function(*(_as_argument(value) for value in arguments), **options)

        return launch


def _as_argument(value: Any) -> Any:
    if isinstance(value, tuple):
        values = map(_as_argument, value)
        return type(value)(*values) if hasattr(value, "_fields") else tuple(values)
    if not isinstance(value, Tensor):
        return value
    memory = torch.as_strided(value.detach(), (value.untyped_storage().nbytes() // value.itemsize,), (1,), 0)
    return Pointers(memory, value.storage_offset())


def _load(pointers: Pointers, mask: Any = True, other: float = 0.0) -> Tensor:
    places, mask = torch.broadcast_tensors(torch.as_tensor(pointers.places), torch.as_tensor(mask))
    # A place outside of the tensor under a set mask is a bug, and raises here.
    values = pointers.memory[torch.where(mask, places, 0)]
    return torch.where(mask, values, torch.tensor(other, dtype=values.dtype))


def _store(pointers: Pointers, values: Tensor, mask: Any = True) -> None:
    places, mask = torch.broadcast_tensors(torch.as_tensor(pointers.places), torch.as_tensor(mask))
    pointers.memory[places[mask]] = values.broadcast_to(places.shape)[mask]


def _where(condition: Any, chosen: Any, other: Any) -> Any:
    if isinstance(chosen, Pointers):
        return chosen if condition else other
    return torch.where(condition, chosen, other)


def _multiply(a: Tensor, b: Tensor, sums: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return sums + a.float() @ b.float()


def _nothing(*arguments: Any, **options: Any) -> None:
    return None


def _gluon() -> dict[str, SimpleNamespace]:
    """The part of Gluon that the kernels use, by the names of the modules from which they import it."""
    layouts = ("SliceLayout", "BlockedLayout", "DotOperandLayout", "NVMMADistributedLayout", "DistributedLinearLayout")
    layouts += ("SharedLinearLayout", "SwizzledSharedLayout")
    language = SimpleNamespace(
        constexpr=object,
        bfloat16=torch.bfloat16,
        float32=torch.float32,
        arange=lambda start, end, layout: torch.arange(start, end),
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
        static_range=range,
        program_id=lambda axis: _program[axis],
        num_programs=lambda axis: _num_programs[axis],
        minimum=min,
        where=_where,
        rsqrt=torch.rsqrt,
        sum=lambda values, axis: values.sum(axis),
        convert_layout=lambda values, layout, assert_trivial: values,
        allocate_shared_memory=lambda dtype, shape, layout, values: SharedMemory(values.to(dtype).reshape(shape)),
        load=_load,
        store=_store,
        **dict.fromkeys(layouts, _nothing),
    )
    gluon = SimpleNamespace(jit=_jit, constexpr_function=lambda function: function, language=language)
    return {
        "triton.experimental": SimpleNamespace(gluon=gluon),
        "triton.experimental.gluon": gluon,
        "triton.experimental.gluon.language.nvidia.ampere": SimpleNamespace(mma_v2=_multiply),
        "triton.language.extra.cuda": SimpleNamespace(gdc_wait=_nothing),
    }


def _triton() -> SimpleNamespace:
    """The part of Triton that the kernels of images use."""

    def either(choose: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
        return lambda first, second: choose(*map(torch.as_tensor, (first, second)))

    language = SimpleNamespace(
        constexpr=lambda value: value,
        **{name: getattr(torch, name) for name in ("uint8", "int32", "int64", "float32", "float64", "floor")},
        arange=torch.arange,
        zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        program_id=lambda axis: torch.tensor(_program[axis]),
        minimum=either(torch.minimum),
        maximum=either(torch.maximum),
        where=lambda condition, chosen, other: torch.where(torch.as_tensor(condition), chosen, other),
        sum=lambda values, axis: values.sum(axis),
        max=lambda values, axis: values.amax(axis),
        min=lambda values, axis: values.amin(axis),
        cumsum=lambda values, axis: values.cumsum(axis),
        histogram=lambda values, num_bins: torch.bincount(values, minlength=num_bins),
        load=_load,
        store=_store,
    )
    return SimpleNamespace(jit=_jit, language=language)


def _jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    return Kernel if function is None else Kernel(function)


def _load_module(name: str, known: dict[str, Any]) -> types.ModuleType:
    """A file of `foster.kernels.device`, with the modules in `known` in place of those that it imports."""

    def import_known(wanted: str, *arguments: Any) -> Any:
        return known[wanted] if wanted in known else __import__(wanted, *arguments)

    module = types.ModuleType(f"foster.kernels.device.{name}")  # its whole name, so that coverage counts it
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_known}
    path = Path(foster.kernels.__file__).parent / "device" / f"{name}.py"
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module


@contextmanager
def emulated_kernels() -> Iterator[None]:
    """Inside, `foster.kernels` runs its kernels on CPU tensors. Needs no Triton."""
    triton = _triton()
    modules: dict[str, Any] = {**_gluon(), "triton": triton, "triton.language": triton}
    modules["foster.kernels.device"] = SimpleNamespace(operations=_load_module("operations", modules))
    for name in ("layouts", "windows", "convolution", "gradient", "normalisation", "linear"):
        modules[f"foster.kernels.device.{name}"] = _load_module(name, modules)
    with mock.patch.object(foster.kernels, "device", _load_module("__init__", modules), create=True):
        yield
