"""How weights lie in memory."""

from typing import TypeVar

import torch
from torch import Tensor, nn

ModuleType = TypeVar("ModuleType", bound=nn.Module)


def channels_last(module: ModuleType) -> ModuleType:
    """`module` itself, with the weights of its 2-D convolutions laid out as GPUs read them fastest.

    Unlike `module.to(memory_format=...)`, it leaves weights of five dimensions alone, which have no such layout.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return module


def on_host(tensor: Tensor) -> Tensor:
    """A dense copy on the CPU, untouched by what later happens to `tensor`."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
