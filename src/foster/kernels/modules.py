"""The kernels' place in a network: modules that use them where they can, and are what they were everywhere else."""

import torch
from torch import Tensor, nn

from foster.kernels import blocks
from foster.kernels.blocks import Layer, Shortcut
from foster.kernels.conv3x3 import is_available, supports
from foster.kernels.launch import Norm
from foster.kernels.linear import linear, supports_linear
from foster.networks.heads import PreciseLinear
from foster.networks.resnet import Block, PaddedSubsample, ResNet

MOST_ON_LARGE_MAPS = 32
"""Channels."""


class KernelLayer(nn.Sequential):
    """A convolution, BatchNorm and ReLU as one function, for bfloat16 maps on a GPU."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name is torch's)
        convolution, norm, _ = self
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        kind = _fused_kind(self, input, [(convolution, norm)])
        if kind == "none":
            output: Tensor = super().forward(input)  # type: ignore[no-untyped-call]
            return output
        images, layer = input.to(torch.bfloat16), _layer(convolution, norm)
        return blocks.trained_layer(images, layer) if kind == "trained" else blocks.frozen_layer(images, layer)


class KernelBlock(Block):
    """A residual block as one function, for bfloat16 maps on a GPU."""

    def forward(self, maps: Tensor) -> Tensor:
        kind = _fused_kind(self, maps, [(self.conv1, self.norm1), (self.conv2, self.norm2)])
        if kind == "none":
            return super().forward(maps)
        maps = maps.to(torch.bfloat16)
        run = blocks.trained_block if kind == "trained" else blocks.frozen_block
        layers = _layer(self.conv1, self.norm1), _layer(self.conv2, self.norm2)
        return run(maps, *layers, self._shortcut(maps), type(self.last_activation) is nn.ReLU)

    def _shortcut(self, maps: Tensor) -> Shortcut:
        if type(self.shortcut) is nn.Identity:
            return Shortcut(maps)
        if type(self.shortcut) is PaddedSubsample:
            return Shortcut(maps, self.shortcut.stride)
        return Shortcut(self.shortcut(maps).to(torch.bfloat16))


class KernelLinear(PreciseLinear):
    """A head's product on the kernels, in float32 as ever, where the maps before it are bfloat16 on a GPU.

    Inference, which is in float32 throughout, thus computes what it computes without kernels.
    """

    def forward(self, features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        exact = features.to(weight.dtype)
        if not _is_traced() and _computes_in_bfloat16(features) and supports_linear(exact, weight, bias):
            return linear(exact, weight, bias)
        return super().forward(features, weight, bias)


def use_kernels(module: nn.Module) -> nn.Module:
    """Make the eligible parts of `module` use the kernels, in place, where they are available: residual blocks, layers
    of convolution, BatchNorm and ReLU, and the products of heads. Weights keep their values and names; in memory their
    channels come last, as the kernels read them fastest."""
    if is_available():
        left_out = _wide_and_large(module)
        for part in module.modules():
            if part in left_out:
                continue
            if type(part) is nn.Sequential and _is_eligible_layer(part):
                part.__class__ = KernelLayer
                _put_channels_last(part[0])
            elif type(part) is Block and _is_eligible_block(part):
                part.__class__ = KernelBlock
                _put_channels_last(part.conv1, part.conv2)
            elif type(part) is PreciseLinear:
                part.__class__ = KernelLinear
    return module


def drop_kernels(module: nn.Module) -> nn.Module:
    """Make the parts of `module` what they were before `use_kernels`, in place."""
    for part in module.modules():
        part.__class__ = PLAIN.get(type(part), type(part))
    return module


PLAIN: dict[type[nn.Module], type[nn.Module]] = {
    KernelLayer: nn.Sequential,
    KernelBlock: Block,
    KernelLinear: PreciseLinear,
}


def _put_channels_last(*convolutions: nn.Module) -> None:
    for convolution in convolutions:
        assert isinstance(convolution, nn.Conv2d)
        convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)


def is_fused(module: nn.Module) -> bool:
    """Whether `module` runs as one function of ours, of which a compiler would make nothing better."""
    return isinstance(module, KernelBlock | KernelLayer)


def _wide_and_large(module: nn.Module) -> set[nn.Module]:
    """The parts for which there are kernels that do not pay: 64 channels on large maps, as in the first stage of a
    ResNet-18. They take up to 2.5 times as long as the library's there, which a compiler can fuse with the rest."""
    first_stages = [network.body[0] for network in module.modules() if isinstance(network, ResNet)]
    return {part for stage in first_stages for part in stage.modules() if _width(part) > MOST_ON_LARGE_MAPS}


def _width(part: nn.Module) -> int:
    convolution = part.conv1 if isinstance(part, Block) else part
    return convolution.in_channels if isinstance(convolution, nn.Conv2d) else 0


def _is_eligible_convolution(convolution: nn.Module) -> bool:
    if type(convolution) is not nn.Conv2d:
        return False
    is_plain = convolution.bias is None and convolution.padding_mode == "zeros" and convolution.padding == (1, 1)
    is_plain = is_plain and convolution.dilation == (1, 1) and convolution.groups == 1
    stride, stride_across = convolution.stride
    return (
        is_plain
        and not _is_watched(convolution)
        and isinstance(convolution.weight, nn.Parameter)  # and not what a hook computes from others
        and stride == stride_across
        and supports((1, convolution.in_channels, 1, 1), convolution.weight.shape, stride)
    )


def _is_eligible_layer(part: nn.Sequential) -> bool:
    kinds = [type(child) for child in part]
    if kinds[1:] != [nn.BatchNorm2d, nn.ReLU] or any(map(_is_watched, part)):
        return False
    return _is_eligible_convolution(part[0])


def _is_eligible_block(block: Block) -> bool:
    # Images of 3 channels have no kernel for their gradient, which a block's input may need.
    are_eligible = all(map(_is_eligible_convolution, (block.conv1, block.conv2))) and block.conv1.in_channels != 3
    norms, shortcut = (block.norm1, block.norm2), block.shortcut
    is_known_shortcut = type(shortcut) is not PaddedSubsample or shortcut.stride == block.conv1.stride[0]
    return (
        are_eligible
        and is_known_shortcut
        and block.conv2.stride == (1, 1)
        and all(type(norm) is nn.BatchNorm2d for norm in norms)
        and type(block.last_activation) in (nn.ReLU, nn.Identity)
        and not any(map(_is_watched, block.children()))
    )


def _is_watched(module: nn.Module) -> bool:
    """Whether somebody wants to be called when `module` is: one function for several modules calls none of them."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def _fused_kind(module: nn.Module, maps: Tensor, layers: list[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> str:
    """How `module`, made of `layers` one after the other, runs on `maps`: `trained`, `frozen`, or `none`: as written.

    A compiler sees the module as written: it cannot look into our functions.
    """
    if _is_traced() or not _computes_in_bfloat16(maps):
        return "none"
    shape = maps.shape
    for convolution, norm in layers:
        stride = convolution.stride[0]
        if not (supports(shape, convolution.weight.shape, stride) and _is_usual(norm) and _is_dense(convolution)):
            return "none"
        num_images, _, height, width = shape
        height, width = ((size - 1) // stride + 1 for size in (height, width))
        shape = torch.Size((num_images, convolution.out_channels, height, width))
    modes = {norm.training for _, norm in layers}
    if modes == {True}:
        # One value has no variance: the plain module says so.
        return "trained" if shape[0] * shape[2] * shape[3] > 1 else "none"
    wants_gradient = torch.is_grad_enabled() and (
        maps.requires_grad or any(parameter.requires_grad for parameter in module.parameters())
    )
    return "frozen" if modes == {False} and not wants_gradient else "none"


def _is_usual(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.track_running_stats and norm.momentum is not None


def _is_dense(convolution: nn.Conv2d) -> bool:
    weight = convolution.weight
    return weight.is_contiguous(memory_format=torch.channels_last) or weight.is_contiguous()


def _layer(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Layer:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    statistics = (norm.running_mean, norm.running_var)
    return Layer(
        convolution.weight, convolution.stride[0], Norm(norm.weight, norm.bias, *statistics, norm.momentum, norm.eps)
    )


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _computes_in_bfloat16(images: Tensor) -> bool:
    if not images.is_cuda:
        return False
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda") is torch.bfloat16
    return images.dtype is torch.bfloat16
