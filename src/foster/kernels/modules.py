"""Modules that use our kernels if possible, and otherwise run as plain torch modules."""

import torch
from torch import Tensor, nn

from foster.kernels import blocks
from foster.kernels.blocks import Layer, Shortcut
from foster.kernels.compilation import is_available
from foster.kernels.launch import Norm
from foster.kernels.linear import linear, supports_linear
from foster.kernels.tiles import supports
from foster.networks.heads import PreciseLinear
from foster.networks.resnet import Block, PaddedSubsample, ResNet

MOST_ON_LARGE_MAPS = 32
"""Kernels run on the large maps of a first stage only up to this many channels."""


class KernelLayer(nn.Sequential):
    """A convolution, BatchNorm and ReLU as one autograd function, for bfloat16 maps on a GPU."""

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
    """A residual block as one autograd function, for bfloat16 maps on a GPU."""

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
    """The float32 linear layer of a head by our kernel, in bfloat16 training steps. Inference runs in float32 and does
    not use the kernel."""

    def forward(self, features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        exact = features.to(weight.dtype)
        if not _is_traced() and _computes_in_bfloat16(features) and supports_linear(exact, weight, bias):
            return linear(exact, weight, bias)
        return super().forward(features, weight, bias)


def use_kernels(module: nn.Module) -> nn.Module:
    """Make the parts of `module` that have kernels use them, in place: residual blocks, layers of convolution,
    BatchNorm and ReLU, and the linear layers of heads. Does nothing if kernels are not available.

    Weights keep their values and names; their memory layout becomes channels last, which the kernels read fastest.
    """
    if not is_available():
        return module
    # On large maps with 64 channels, as in the first stage of a ResNet-18, our kernels take up to 2.5 times as long as
    # cuDNN's, which torch.compile can fuse with other operations.
    first_stages = [network.body[0] for network in module.modules() if isinstance(network, ResNet)]
    on_large_maps = {block for stage in first_stages for block in stage.children()}
    for part in module.modules():
        if type(part) is nn.Sequential:
            if [type(child) for child in part][1:] == [nn.BatchNorm2d, nn.ReLU] and _has_kernel(part[0]):
                part.__class__ = KernelLayer
                _put_channels_last(part[0])
        elif type(part) is Block and _has_kernel(part.conv1) and _has_kernel(part.conv2):
            if part not in on_large_maps or part.conv1.in_channels <= MOST_ON_LARGE_MAPS:
                part.__class__ = KernelBlock
                _put_channels_last(part.conv1, part.conv2)
        elif type(part) is PreciseLinear:
            part.__class__ = KernelLinear
    return module


def _has_kernel(convolution: nn.Module) -> bool:
    """Whether there is a kernel for this convolution: 3x3, padding 1, no bias, and a supported number of channels."""
    if not isinstance(convolution, nn.Conv2d) or convolution.bias is not None or convolution.groups != 1:
        return False
    is_plain = (convolution.padding, convolution.dilation, convolution.padding_mode) == ((1, 1), (1, 1), "zeros")
    shape, stride = convolution.weight.shape, convolution.stride
    return is_plain and stride[0] == stride[1] and supports((1, shape[1], 1, 1), shape, stride[0])


def drop_kernels(module: nn.Module) -> nn.Module:
    """Undo `use_kernels`, in place."""
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
    """Whether `module` is one of our autograd functions, which torch.compile cannot improve."""
    return isinstance(module, KernelBlock | KernelLayer)


def _fused_kind(module: nn.Module, maps: Tensor, layers: list[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> str:
    """How `module`, a sequence of `layers`, runs on `maps`: "trained" or "frozen" by kernels, "none" as plain modules.

    While it is traced, a module always runs as plain modules: tracers cannot trace our autograd functions.
    """
    if _is_traced() or not _computes_in_bfloat16(maps):
        return "none"
    shape = maps.shape
    for convolution, _ in layers:
        stride = convolution.stride[0]
        if not supports(shape, convolution.weight.shape, stride):
            return "none"
        num_images, _, height, width = shape
        height, width = ((size - 1) // stride + 1 for size in (height, width))
        shape = torch.Size((num_images, convolution.out_channels, height, width))
    modes = {norm.training for _, norm in layers}
    if modes == {True}:
        # One value a channel has no variance: the plain module raises torch's error.
        return "trained" if shape[0] * shape[2] * shape[3] > 1 else "none"
    wants_gradient = torch.is_grad_enabled() and (
        maps.requires_grad or any(parameter.requires_grad for parameter in module.parameters())
    )
    return "frozen" if modes == {False} and not wants_gradient else "none"


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
