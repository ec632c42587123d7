"""Memory layouts of tensors."""

from typing import TypeVar

import torch
from torch import Tensor, nn

ModuleType = TypeVar("ModuleType", bound=nn.Module)


def channels_last(module: ModuleType) -> ModuleType:
    """`module` itself, with all tensors of four dimensions in channels-last layout.

    `module.to(memory_format=...)` fails for tensors of five dimensions, which this function leaves unchanged.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return module


def on_host(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
