"""Functions for any module: freezing, memory layout, and running a frozen module beside a trained one. And Normaliser,
which normalises images."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

ModuleType = TypeVar("ModuleType", bound=nn.Module)
Frozen = TypeVar("Frozen")
Trained = TypeVar("Trained")


def freeze(module: ModuleType) -> ModuleType:
    """Stop the training of all parameters and put the module in eval mode. Returns the module itself."""
    return module.requires_grad_(False).eval()


def unfreeze(module: ModuleType) -> ModuleType:
    """Let all parameters be trained and put the module in train mode. Returns the module itself."""
    return module.requires_grad_(True).train()


def is_frozen(module: nn.Module) -> bool:
    """Whether the module has parameters and none of them is trained."""
    trained = [parameter.requires_grad for parameter in module.parameters()]
    return bool(trained) and not any(trained)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Inside, the network is in eval mode; afterwards the mode of every part is restored."""
    was_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in was_training:
            module.training = True


def training_mode(network: nn.Module) -> None:
    """Put the network in train mode, and every frozen part of it in eval mode.

    Otherwise the BatchNorm statistics of a frozen branch would change with each batch.
    """
    network.train()
    for module in network.modules():
        if is_frozen(module):
            module.eval()


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


@cache
def _side_stream(device: int, parent: int, number: int) -> torch.cuda.Stream:
    """Stream `number` beside the stream `parent`, created once: cuBLAS keeps a workspace for every stream.

    It waits for `parent` whenever it is used, so memory that `parent` has read can be used again.
    """
    return torch.cuda.Stream(device)


def at_once(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of functions that do not depend on each other; gradients only reach the last.

    While a CUDA graph is recorded, the last runs in the current stream and each of the others in a side stream of it,
    so that the replayed graph overlaps them. Otherwise one runs after the other: outside of a graph, launches take
    longer than the kernels, and nothing would overlap. If the last called `at_once` itself, it would use the same side
    streams again, so such a function comes first.
    """
    *others, last = functions
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        with torch.no_grad():
            results = [function() for function in others]
        return [*results, last()]
    main = torch.cuda.current_stream()
    sides = [_side_stream(main.device_index, main.cuda_stream, number) for number in range(len(others))]
    results = []
    for side, function in zip(sides, others, strict=True):
        side.wait_stream(main)
        with torch.cuda.stream(side), torch.no_grad():
            results.append(function())
    results.append(last())
    for side in sides:
        main.wait_stream(side)
    return results


def both(
    frozen: Callable[[Tensor], Frozen], trained: Callable[[Tensor], Trained], images: Tensor
) -> tuple[Frozen, Trained]:
    """The outputs of two networks for the same images, `at_once`: teacher and student, or old and new branch."""
    first, second = at_once([partial(frozen, images), partial(trained, images)])
    return first, second


class Normaliser(nn.Module):
    """(images / 255 - mean) / std for images `[N, 3, H, W]` uint8 on its device; computed in float32."""

    factor: Tensor
    shift: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu") -> None:
        super().__init__()
        means, stds = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
        self.register_buffer("factor", (1 / (255 * stds)).to(device))
        self.register_buffer("shift", (-means / stds).to(device))

    def forward(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        values = images.to(torch.float32, memory_format=torch.channels_last)
        return torch.addcmul(self.shift, values, self.factor).to(dtype)
