"""The kernels' place in a network: convolutions that use them where they can."""

import torch
from torch import Tensor, nn

from foster.kernels.conv3x3 import conv3x3, is_available, supports


class KernelConv2d(nn.Conv2d):
    """A convolution that uses the kernels for bfloat16 maps on a GPU, and is an `nn.Conv2d` everywhere else."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name is torch's)
        stride = self.stride[0]
        if _computes_in_bfloat16(input) and supports(input.shape, self.weight.shape, stride):
            return conv3x3(input.to(torch.bfloat16), self.weight, stride)
        return super().forward(input)


def use_kernels(module: nn.Module) -> nn.Module:
    """Make the eligible convolutions of `module` use the kernels, in place, where they are available. Weights keep
    their values and names; in memory their channels come last, as the kernels read them fastest."""
    if is_available():
        for part in module.modules():
            if type(part) is nn.Conv2d and _is_eligible(part):
                part.__class__ = KernelConv2d
                part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)
    return module


def _is_eligible(convolution: nn.Conv2d) -> bool:
    is_plain = convolution.bias is None and convolution.padding_mode == "zeros" and convolution.padding == (1, 1)
    is_plain = is_plain and convolution.dilation == (1, 1) and convolution.groups == 1
    stride, stride_across = convolution.stride
    return (
        is_plain
        and stride == stride_across
        and supports((1, convolution.in_channels, 1, 1), convolution.weight.shape, stride)
    )


def _computes_in_bfloat16(images: Tensor) -> bool:
    if not images.is_cuda:
        return False
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda") is torch.bfloat16
    return images.dtype is torch.bfloat16
