"""The 3x3 convolution of narrow networks as PyTorch operators with gradients.

For 3 to 64 channels the library's kernels take five to fifteen times as long as moving the data would. These take
bfloat16 maps, channels last, and weights of any floating type: there is no cast to wait for. They sum in float32.
"""

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn.grad import conv2d_input

from foster.kernels import launch
from foster.kernels.epilogues import empty_maps
from foster.kernels.weight_gradients import weight_gradient

IN_CHANNELS = (3, 16, 32, 64)
OUT_CHANNELS = (16, 32, 64)
STRIDES = (1, 2)


def is_available() -> bool:
    """Whether the kernels can run on the current GPU: it needs bfloat16 tensor cores, and a Triton that has Gluon."""
    return torch.cuda.is_available() and _runs_on(torch.cuda.current_device())


@functools.cache
def _runs_on(gpu: int) -> bool:
    if torch.version.hip or torch.cuda.get_device_capability(gpu) < (8, 0):
        return False
    try:
        importlib.import_module("foster.kernels.device")
    except (ImportError, AttributeError):
        return False
    return True


def supports(image_shape: Sequence[int], weight_shape: Sequence[int], stride: int = 1) -> bool:
    """Whether there is a kernel for images [N, in, H, W] and a weight [out, in, 3, 3], padding 1."""
    out_channels, in_channels, *window = weight_shape
    num_images, image_channels, height, width = image_shape
    is_known = in_channels in IN_CHANNELS and out_channels in OUT_CHANNELS and stride in STRIDES and window == [3, 3]
    # The kernels count elements in 32 bits.
    return (
        is_known
        and image_channels == in_channels
        and 0 < num_images * height * width * max(out_channels, in_channels) < 2**31
    )


def conv3x3(images: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Images [N, in, H, W], bfloat16, convolved with weight [out, in, 3, 3]; padding 1, no bias."""
    _check(images, weight, stride)
    output: Tensor = _conv3x3(images, _dense(weight), stride)
    return output


def _check(images: Tensor, weight: Tensor, stride: int) -> None:
    if images.dtype is not torch.bfloat16:
        raise TypeError(f"conv3x3 takes bfloat16 images, not {images.dtype}")
    if not supports(images.shape, weight.shape, stride):
        shapes = f"images {tuple(images.shape)}, weight {tuple(weight.shape)}, stride {stride}"
        raise ValueError(f"there is no 3x3 kernel for {shapes}; ask supports() first")


def _dense(weight: Tensor) -> Tensor:
    return weight if weight.is_contiguous(memory_format=torch.channels_last) else weight.contiguous()


@custom_op("foster::conv3x3", mutates_args=())
def _conv3x3(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    return launch.convolve(images, weight, stride)


@custom_op("foster::conv3x3_input_gradient", mutates_args=())
def _input_gradient(gradient: Tensor, weight: Tensor, stride: int, height: int, width: int) -> Tensor:
    return launch.input_gradient(gradient, weight, stride, height, width)


@custom_op("foster::conv3x3_weight_gradient", mutates_args=())
def _weight_gradient(images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    return weight_gradient(images, gradient, weight, stride)


@_conv3x3.register_fake
def _(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    geometry = launch.forward_geometry(images, weight, stride)
    return empty_maps(images, geometry.out_channels, geometry.out_height, geometry.out_width)


@_input_gradient.register_fake
def _(gradient: Tensor, weight: Tensor, stride: int, height: int, width: int) -> Tensor:
    return empty_maps(gradient, weight.shape[1], height, width)


@_weight_gradient.register_fake
def _(images: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    return torch.empty_like(weight)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    images, weight, ctx.stride = inputs
    ctx.save_for_backward(images, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    images, weight = ctx.saved_tensors[:2]
    needs_images, needs_weight, _ = ctx.needs_input_grad
    height, width = images.shape[2:]
    of_images = of_weight = None
    if needs_images and images.shape[1] == 3:
        # Nobody trains the images; so rare a gradient may be slow.
        of_images = conv2d_input(images.shape, weight.to(gradient.dtype), gradient, ctx.stride, 1)
    elif needs_images:
        of_images = _input_gradient(gradient, weight, ctx.stride, height, width)
    if needs_weight:
        of_weight = _weight_gradient(images, gradient, weight, ctx.stride)
    return of_images, of_weight, None


_conv3x3.register_autograd(_backward, setup_context=_save)
