"""Frozen parts of wide networks for a training step: BatchNorm folded into the convolutions before it, and convolution,
addition and ReLU as one call of the library. So a frozen branch writes each map once and reads it once."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.networks.freezing import is_frozen
from foster.networks.network import Backbone
from foster.networks.resnet import Block, Bottleneck

WIDE = 64
"""Channels of a backbone's first convolution from which on it counts as wide."""


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
        """With `added` to the result, and ReLU."""
        if maps.is_cuda and _has_fused_convolutions(maps.device.index):
            geometry = (self.stride,) * 2, (self.padding,) * 2, (1, 1), 1
            if added is None:
                return torch.cudnn_convolution_relu(maps, self.weight, self.bias, *geometry)
            return torch.cudnn_convolution_add_relu(maps, self.weight, added, 1.0, self.bias, *geometry)
        output = self(maps)
        return functional.relu_(output if added is None else output.add_(added))


@functools.cache
def _has_fused_convolutions(gpu: int) -> bool:
    """Whether the library has such a convolution in bfloat16; tried once on a small one."""
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


class FoldedBlock(Block):
    """A residual block of two convolutions, folded."""

    folded: list[Folded]

    def forward(self, maps: Tensor) -> Tensor:
        maps = maps.to(self.folded[0].weight.dtype)
        first, second, *shortcut = self.folded
        return _summed(self, first.rectified(maps), second, shortcut, maps)


class FoldedBottleneck(Bottleneck):
    """The same of three convolutions."""

    folded: list[Folded]

    def forward(self, maps: Tensor) -> Tensor:
        maps = maps.to(self.folded[0].weight.dtype)
        first, second, third, *shortcut = self.folded
        return _summed(self, second.rectified(first.rectified(maps)), third, shortcut, maps)


def _summed(block: Block | Bottleneck, residual: Tensor, last: Folded, shortcut: list[Folded], maps: Tensor) -> Tensor:
    added = shortcut[0](maps) if shortcut else maps
    if type(block.last_activation) is nn.ReLU:
        return last.rectified(residual, added)
    return last(residual) + added


class FoldedLayer(nn.Sequential):
    """A convolution, BatchNorm and ReLU, and what follows them, folded."""

    folded: list[Folded]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name is torch's)
        maps = self.folded[0].rectified(input.to(self.folded[0].weight.dtype))
        for part in list(self)[3:]:
            maps = part(maps)
        return maps


FOLDED: dict[type[nn.Module], type[nn.Module]] = {
    Block: FoldedBlock,
    Bottleneck: FoldedBottleneck,
    nn.Sequential: FoldedLayer,
}


@contextmanager
def folded_frozen_parts(modules: Iterable[nn.Module], is_wanted: bool, dtype: torch.dtype) -> Iterator[None]:
    """Inside, the blocks and stems of wide frozen backbones in `modules` that can be folded are; their weights stay."""
    inside = {part for module in modules for part in module.modules() if is_wanted}
    wide = [backbone for backbone in inside if isinstance(backbone, Backbone) and _is_wide(backbone)]
    frozen = {part for backbone in wide for part in backbone.modules() if is_frozen(part)}
    chosen = [(part, type(part)) for part in frozen if _pairs(part)]
    for part, kind in chosen:
        part.__dict__["folded"] = [Folded.of(convolution, norm, dtype) for convolution, norm in _pairs(part)]
        part.__class__ = FOLDED[kind]
    try:
        yield
    finally:
        for part, kind in chosen:
            part.__class__ = kind
            del part.__dict__["folded"]


def _is_wide(backbone: Backbone) -> bool:
    """Whether the library's kernels are the fast ones for it; narrow backbones have kernels of our own."""
    first = next((part for part in backbone.modules() if isinstance(part, nn.Conv2d)), None)
    return first is not None and first.out_channels >= WIDE


def _pairs(part: nn.Module) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """The convolutions of a part with the BatchNorm after each, the shortcut's last; none where it cannot be folded."""
    if type(part) is nn.Sequential:
        kinds = [type(child) for child in part]
        return _all_pairs([(part[0], part[1])]) if kinds[:3] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] else []
    if type(part) not in (Block, Bottleneck):
        return []
    assert isinstance(part, Block | Bottleneck)
    pairs: list[tuple[nn.Module, nn.Module]] = [(part.conv1, part.norm1), (part.conv2, part.norm2)]
    if isinstance(part, Bottleneck):
        pairs.append((part.conv3, part.norm3))
    if isinstance(part.shortcut, nn.Sequential):
        pairs.append((part.shortcut[0], part.shortcut[1]))
    elif type(part.shortcut) is not nn.Identity:
        return []
    return _all_pairs(pairs)


def _all_pairs(pairs: list[tuple[nn.Module, nn.Module]]) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    usual = [
        (convolution, norm)
        for convolution, norm in pairs
        if type(convolution) is nn.Conv2d and type(norm) is nn.BatchNorm2d and convolution.groups == 1
    ]
    return usual if len(usual) == len(pairs) else []


def is_folded(module: nn.Module) -> bool:
    return type(module) in FOLDED.values()
