"""Frozen parts of wide ResNets in a training step: BatchNorm is folded into the convolution before it, and convolution,
addition and ReLU become one cuDNN call, so that a frozen branch reads and writes each map once."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.networks.freezing import is_frozen
from foster.networks.resnet import Block, Bottleneck, ResNet

WIDE = 64
"""A network is wide if its first convolution has at least this many output channels."""


class Folded(NamedTuple):
    """A convolution and the BatchNorm after it as one convolution with a bias."""

    weight: Tensor
    bias: Tensor
    stride: int
    padding: int

    @classmethod
    @torch.no_grad()
    def of(cls, convolution: nn.Conv2d, norm: nn.BatchNorm2d, dtype: torch.dtype) -> "Folded":
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        weight = convolution.weight.double() * scale.view(-1, 1, 1, 1)
        bias = norm.bias.double() - norm.running_mean.double() * scale
        stride, padding = convolution.stride[0], convolution.padding
        assert isinstance(padding, tuple)
        laid_out = weight.to(dtype, memory_format=torch.channels_last)
        return cls(laid_out, bias.to(dtype), stride, padding[0])

    def __call__(self, maps: Tensor) -> Tensor:
        return functional.conv2d(maps, self.weight, self.bias, self.stride, self.padding)

    def rectified(self, maps: Tensor, added: Tensor | None = None) -> Tensor:
        """ReLU of the result plus `added`."""
        if maps.is_cuda and _has_fused_convolutions(maps.device.index):
            geometry = (self.stride,) * 2, (self.padding,) * 2, (1, 1), 1
            if added is None:
                return torch.cudnn_convolution_relu(maps, self.weight, self.bias, *geometry)
            return torch.cudnn_convolution_add_relu(maps, self.weight, added, 1.0, self.bias, *geometry)
        output = self(maps)
        return functional.relu_(output if added is None else output.add_(added))


@functools.cache
def _has_fused_convolutions(gpu: int) -> bool:
    """Whether cuDNN has fused convolutions in bfloat16 on this GPU; tested once on a small one."""
    maps = torch.randn(2, 16, 8, 8, device=f"cuda:{gpu}").to(torch.bfloat16, memory_format=torch.channels_last)
    weight = torch.randn(16, 16, 3, 3, device=maps.device).to(torch.bfloat16, memory_format=torch.channels_last)
    bias, geometry = torch.randn(16, device=maps.device).bfloat16(), ((1, 1), (1, 1), (1, 1), 1)
    try:
        added = torch.cudnn_convolution_add_relu(maps, weight, maps, 1.0, bias, *geometry)
        plain = torch.cudnn_convolution_relu(maps, weight, bias, *geometry)
    except RuntimeError:
        return False
    with torch.autocast("cuda", enabled=False):
        expected = functional.conv2d(maps.float(), weight.float(), bias.float(), padding=1)
    pairs = ((added, expected + maps), (plain, expected))
    return all(torch.allclose(ours.float(), theirs.relu(), rtol=0.05, atol=0.2) for ours, theirs in pairs)


@contextmanager
def folded_frozen_parts(modules: Iterable[nn.Module], is_wanted: bool, dtype: torch.dtype) -> Iterator[None]:
    """Inside, the frozen blocks and stems of wide ResNets in `modules` run folded. Their weights do not change."""
    inside = {part for module in modules for part in module.modules() if is_wanted}
    wide = [network for network in inside if isinstance(network, ResNet) and _is_wide(network)]
    frozen = {part for network in wide for part in network.modules() if is_frozen(part)}
    forwards = [(part, forward) for part in frozen if (forward := _folded(part, dtype)) is not None]
    for part, forward in forwards:
        part.__dict__["forward"] = forward
    try:
        yield
    finally:
        for part, _ in forwards:
            del part.__dict__["forward"]


def is_folded(module: nn.Module) -> bool:
    return "forward" in vars(module)


def _is_wide(network: ResNet) -> bool:
    """Whether cuDNN is the faster choice for the network; narrow networks have kernels of our own."""
    first = next(part for part in network.modules() if isinstance(part, nn.Conv2d))
    return first.out_channels >= WIDE


def _folded(part: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
    """The replacement for the `forward` of a block or a stem; None for other parts."""
    if type(part) in (Block, Bottleneck):
        assert isinstance(part, Block | Bottleneck)
        return _folded_block(part, dtype)
    if type(part) is nn.Sequential and [type(child) for child in part][:3] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
        return _folded_stem(part, dtype)
    return None


def _folded_block(block: Block | Bottleneck, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    pairs = [(block.conv1, block.norm1), (block.conv2, block.norm2)]
    if isinstance(block, Bottleneck):
        pairs.append((block.conv3, block.norm3))
    *before, last = (Folded.of(convolution, norm, dtype) for convolution, norm in pairs)
    shortcut = _first_layer(block.shortcut, dtype) if isinstance(block.shortcut, nn.Sequential) else None
    is_rectified = type(block.last_activation) is nn.ReLU

    def forward(maps: Tensor) -> Tensor:
        maps = residual = maps.to(dtype)
        for folded in before:
            residual = folded.rectified(residual)
        added = maps if shortcut is None else shortcut(maps)
        return last.rectified(residual, added) if is_rectified else last(residual) + added

    return forward


def _first_layer(layers: nn.Sequential, dtype: torch.dtype) -> Folded:
    convolution, norm, *_ = layers
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return Folded.of(convolution, norm, dtype)


def _folded_stem(stem: nn.Sequential, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    folded, others = _first_layer(stem, dtype), list(stem)[3:]

    def forward(images: Tensor) -> Tensor:
        maps = folded.rectified(images.to(dtype))
        for other in others:
            maps = other(maps)
        return maps

    return forward
