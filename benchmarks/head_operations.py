"""The small linear layers of heads as operations to be timed: ours, and the same by the library."""

from collections.abc import Callable

import torch
from block_operations import Operation
from torch import Tensor
from torch.nn import functional

from foster.kernels.linear import linear

HEADS = ((64, 10), (64, 60), (128, 60), (128, 100), (640, 100))
"""Features and classes."""


def head_operations(
    num_images: int, num_features: int, num_classes: int, num_sets: int, device: str
) -> dict[str, tuple[Operation, Callable[[int], Tensor]]]:
    """By name, ours and the library's: the forward pass, and that with all gradients."""
    chance = torch.Generator(device).manual_seed(num_classes)

    def values(*shape: int) -> list[Tensor]:
        return [torch.randn(shape, device=device, generator=chance) for _ in range(num_sets)]

    features, gradients = values(num_images, num_features), values(num_images, num_classes)
    weight, bias = torch.randn(num_classes, num_features, device=device), torch.randn(num_classes, device=device)

    def forward(function: Callable[..., Tensor], i: int) -> Tensor:
        with torch.no_grad():
            return function(features[i], weight, bias)

    def training(function: Callable[..., Tensor], i: int) -> Tensor:
        inputs = [value.detach().requires_grad_() for value in (features[i], weight, bias)]
        return torch.autograd.grad(function(*inputs), inputs, gradients[i])[1]

    operations = {}
    for name, run in (("forward", forward), ("training", training)):
        exact = run(lambda *inputs: functional.linear(*(value.double() for value in inputs)).float(), 0).float()
        num_bytes = features[0].nbytes + weight.nbytes + gradients[0].nbytes
        ours = Operation(lambda i, run=run: run(linear, i), exact, num_bytes)  # type: ignore[misc]
        operations[name] = (ours, lambda i, run=run: run(functional.linear, i))
    return operations
