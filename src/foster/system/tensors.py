"""Tensors from safetensors files of strangers: bounded in size, and of types that networks have."""

from pathlib import Path
from typing import TYPE_CHECKING

from foster.system.files import read_limited
from foster.system.memory import main_memory

if TYPE_CHECKING:
    from torch import Tensor

MAX_BYTES_WHERE_MEMORY_IS_UNKNOWN = 2**34


def max_tensor_bytes() -> int:
    """The largest file of tensors that is read: half of the main memory, since tensors are made from its content."""
    memory = main_memory()
    return MAX_BYTES_WHERE_MEMORY_IS_UNKNOWN if memory is None else memory // 2


def read_tensors(path: Path, max_bytes: int | None = None) -> "dict[str, Tensor]":
    """The tensors of a safetensors file; OSError or ValueError where it cannot be read."""
    return tensors_in(read_limited(path, max_tensor_bytes() if max_bytes is None else max_bytes))


def tensors_in(content: bytes) -> "dict[str, Tensor]":
    """The tensors in the content of a safetensors file; ValueError where it is damaged, or a number is of a kind that
    no network of ours has: floating point is float16, bfloat16, float32 or float64."""
    import safetensors.torch
    import torch

    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"it is damaged: {error}") from None
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    for name, tensor in tensors.items():
        if tensor.dtype not in (*floats, *integers):
            wanted = ", ".join(str(each).removeprefix("torch.") for each in floats)
            raise ValueError(f"'{name[:80]}' is {tensor.dtype}; weights are {wanted}")
    return tensors
