"""Residual blocks and layers in float64, as a reference for the kernels: on the CPU, where they are emulated, and on a
GPU.

The references round to bfloat16 where the kernels store maps. Without, one sum in a few hundred would have another sign
behind a ReLU, and differences of a few hundredths in the gradients would hide errors.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.kernels import is_fused, use_kernels
from foster.networks.resnet import Block, PaddedSubsample, projection

MOST_ERROR = {"output": 1e-3, "gradient": 1e-2, "weight gradient": 3e-2, "statistics": 1e-4}
"""bfloat16 has 8 bits: one rounding costs 1e-3 to 2e-3 of a tensor's norm, and gradients see a few of them. In the sum
over all pixels that is a weight's gradient, random gradients cancel and what rounding did to them does not."""


class Shape(NamedTuple):
    num_images: int
    channels: int
    height: int
    width: int


def random_weights(module: nn.Module) -> nn.Module:
    """Weights and statistics as in the midst of a training: no gamma is 1, no beta 0; weights are bfloat16 values."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.5, 0.5)
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.uniform_(-1, 1)
            part.running_var.uniform_(0.5, 2)
        elif isinstance(part, nn.Conv2d):
            part.weight.data = part.weight.data.to(torch.bfloat16).float()
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def make_block(kind: str, channels: int = 16) -> nn.Module:
    torch.manual_seed(len(kind) + channels)
    out_channels = channels if kind in ("same", "no_relu") else 2 * channels
    stride = 1 if out_channels == channels else 2
    block = Block(channels, out_channels, stride, projection if kind == "projection" else PaddedSubsample)
    if kind == "no_relu":
        block.last_activation = nn.Identity()
    return random_weights(block)


def random_maps(shape: Shape, device: str = "cpu") -> Tensor:
    """Maps as a ReLU leaves them, half of them zero."""
    generator = torch.Generator().manual_seed(sum(shape))
    maps = torch.randn(tuple(shape), generator=generator).relu().to(device, torch.bfloat16)
    return maps.contiguous(memory_format=torch.channels_last)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.detach().double() - expected.double()).norm() / expected.double().norm())


def rounded(maps: Tensor) -> Tensor:
    """The nearest bfloat16 values, in float64; for gradients as if nothing had happened."""
    return maps + (maps.detach().to(torch.bfloat16).double() - maps.detach())


def exact(module: nn.Module, maps: Tensor) -> Tensor:
    """What a block or a layer in float64 computes of `maps`. A frozen one stores no sums before they are normalised."""
    keep = rounded if module.training else (lambda sums: sums)
    if isinstance(module, nn.Sequential):
        convolution, norm, activation = module
        return rounded(activation(norm(keep(convolution(maps)))))
    assert isinstance(module, Block)
    if isinstance(module.shortcut, nn.Sequential):
        convolution, norm = module.shortcut
        shortcut = rounded(norm(rounded(convolution(maps))))
    else:
        shortcut = module.shortcut(maps)
    residual = rounded(functional.relu(module.norm1(keep(module.conv1(maps)))))
    return rounded(module.last_activation(module.norm2(keep(module.conv2(residual))) + shortcut))


def results(module: nn.Module, maps: Tensor, run: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Output, all gradients and the running statistics after one pass in training mode."""
    maps = maps.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    module.train()
    output = run(maps)
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    output.backward(gradient.to(output))
    assert maps.grad is not None
    found = {"output": output.detach(), "gradient of maps": maps.grad}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype is parameter.dtype
        if parameter.shape[2:] == (3, 3):
            assert parameter.grad.stride() == parameter.stride(), name
        found[f"gradient of {name}"] = parameter.grad
    statistics = {name: value for name, value in module.named_buffers() if value.is_floating_point()}
    return found | {f"statistics {name}": value for name, value in statistics.items()}


def _kind(name: str) -> str:
    is_weight = name.startswith("gradient of conv") or name == "gradient of 0.weight"
    return "weight gradient" if is_weight else name.split()[0]


def assert_trains_right(module: nn.Module, maps: Tensor) -> None:
    plain = copy.deepcopy(module).double()
    expected = results(plain, maps.double(), partial(exact, plain))
    assert is_fused(use_kernels(module))
    with torch.autocast(maps.device.type, torch.bfloat16):
        found = results(module, maps, module)
    assert found["output"].dtype is torch.bfloat16
    assert found["output"].is_contiguous(memory_format=torch.channels_last)
    errors = {name: error(found[name], value) for name, value in expected.items()}
    wrong = {name: value for name, value in errors.items() if not value < MOST_ERROR[_kind(name)]}
    assert not wrong, errors
