"""Autograd functions for a layer (3x3 convolution, BatchNorm, ReLU) and for a residual block, computed by kernels only.

In training, the convolution also accumulates the BatchNorm statistics of its output, so a layer is three launches
forward (convolve, finish, normalise) and five backward, of which the two for the weight can be deferred. A frozen layer
is one launch.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

from foster.kernels import launch
from foster.kernels.launch import Added, Gate, Norm, channels_last
from foster.kernels.weight_gradients import DeferredGradients, weight_gradient


class Layer(NamedTuple):
    """A 3x3 convolution without bias, followed by a BatchNorm."""

    weight: Tensor
    stride: int
    norm: Norm


class Shortcut(NamedTuple):
    """The maps that a block adds to its residual: every `stride`-th pixel, with zeros for missing channels."""

    maps: Tensor
    stride: int = 1


def frozen_layer(images: Tensor, layer: Layer, is_rectified: bool = True, added: Added | None = None) -> Tensor:
    """Convolution, BatchNorm with running statistics, addition and ReLU, without gradients."""
    return launch.convolve_frozen(images, layer.weight, layer.stride, layer.norm, is_rectified, added)


def frozen_block(maps: Tensor, first: Layer, second: Layer, shortcut: Shortcut, is_rectified: bool) -> Tensor:
    """A residual block without gradients."""
    maps = channels_last(maps)
    added = Added(channels_last(shortcut.maps), down=shortcut.stride)
    return frozen_layer(frozen_layer(maps, first), second, is_rectified, added)


def trained_layer(images: Tensor, layer: Layer) -> Tensor:
    """Convolution, BatchNorm with the statistics of the batch, and ReLU."""
    output: Tensor = _Layer.apply(images, layer.weight, layer.norm.gamma, layer.norm.beta, layer)  # type: ignore[no-untyped-call]
    return output


def trained_block(maps: Tensor, first: Layer, second: Layer, shortcut: Shortcut, is_rectified: bool) -> Tensor:
    """A residual block: two layers, the second without ReLU, plus the shortcut, then ReLU.

    An identity shortcut is the same tensor as `maps` and shares its gradient.
    """
    plan = _Plan(first, second, shortcut.stride, is_rectified)
    is_identity = shortcut.maps is maps
    parameters = [value for layer in (first, second) for value in (layer.weight, layer.norm.gamma, layer.norm.beta)]
    output: Tensor = _Block.apply(maps, None if is_identity else shortcut.maps, *parameters, plan)  # type: ignore[no-untyped-call]
    return output


class _Normalised(NamedTuple):
    """The tensors that the backward pass of a layer needs: the convolution's output, the BatchNorm's coefficients, and
    the layer's output."""

    maps: Tensor
    coefficients: Tensor
    output: Tensor


def _train(images: Tensor, layer: Layer, is_rectified: bool = True, added: Added | None = None) -> _Normalised:
    summed = launch.convolve_with_statistics(images, layer.weight, layer.stride)
    coefficients = launch.finish_statistics(summed, layer.norm)
    output = launch.normalise(summed.maps, coefficients, is_rectified, added)
    return _Normalised(summed.maps, coefficients, output)


def _weight_gradient(
    deferred: DeferredGradients | None, images: Tensor, gradient: Tensor, weight: Tensor, stride: int
) -> Tensor:
    compute = weight_gradient if deferred is None else deferred.of_weight
    return compute(images, gradient, weight, stride)


class _Layer(torch.autograd.Function):
    """One layer. Its parameters are in `layer`, and also arguments, so that they get gradients."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, layer: Layer) -> Tensor:
        images = channels_last(images)
        maps, coefficients, output = _train(images, layer)
        ctx.stride = layer.stride
        ctx.deferred = DeferredGradients.current()
        if ctx.deferred is not None:
            ctx.deferred.count_use(weight)
        ctx.save_for_backward(images, weight, gamma, beta, maps, coefficients, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, gamma, beta, maps, coefficients, output = ctx.saved_tensors
        gradient = channels_last(gradient)
        summed = launch.sum_gradient(gradient, output, maps, coefficients)
        of_norm = launch.finish_gradient(summed, gamma, beta, coefficients)
        of_maps, _ = launch.pass_gradient(gradient, output, maps, of_norm.coefficients)
        of_weight = of_images = None
        if ctx.needs_input_grad[1]:
            of_weight = _weight_gradient(ctx.deferred, images, of_maps, weight, ctx.stride)
        if ctx.needs_input_grad[0] and images.shape[1] == 3:
            # There is no kernel for gradients of images, which are rarely needed.
            of_images = conv2d_input(images.shape, weight.to(of_maps.dtype), of_maps, ctx.stride, 1)
        elif ctx.needs_input_grad[0]:
            of_images = launch.input_gradient(of_maps, weight, ctx.stride, *images.shape[2:])
        return of_images, of_weight, of_norm.gamma, of_norm.beta, None


class _Plan(NamedTuple):
    """The facts of a block that are not tensors with gradients."""

    first: Layer
    second: Layer
    shortcut_stride: int
    is_rectified: bool


class _Block(torch.autograd.Function):
    """A residual block. If `shortcut` is None, the shortcut is the input."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        shortcut: Tensor | None,
        weight1: Tensor,
        gamma1: Tensor,
        beta1: Tensor,
        weight2: Tensor,
        gamma2: Tensor,
        beta2: Tensor,
        plan: _Plan,
    ) -> Tensor:
        maps = channels_last(maps)
        added = Added(maps if shortcut is None else channels_last(shortcut), down=plan.shortcut_stride)
        first = _train(maps, plan.first)
        second = _train(first.output, plan.second, plan.is_rectified, added)
        ctx.stride, ctx.shortcut_stride, ctx.is_rectified = plan.first.stride, plan.shortcut_stride, plan.is_rectified
        ctx.is_identity = shortcut is None
        ctx.deferred = DeferredGradients.current()
        if ctx.deferred is not None:
            ctx.deferred.count_use(weight1)
            ctx.deferred.count_use(weight2)
        ctx.save_for_backward(maps, weight1, gamma1, beta1, *first, weight2, gamma2, beta2, *second)
        return second.output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (maps, weight1, gamma1, beta1, maps1, coefficients1, output1,
         weight2, gamma2, beta2, maps2, coefficients2, output2) = ctx.saved_tensors  # fmt: skip
        needs_maps, _, needs_weight1, _, _, needs_weight2, *_ = ctx.needs_input_grad
        gradient = channels_last(gradient)
        opened = output2 if ctx.is_rectified else None

        summed = launch.sum_gradient(gradient, opened, maps2, coefficients2)
        of_norm2 = launch.finish_gradient(summed, gamma2, beta2, coefficients2)
        of_maps2, passed = launch.pass_gradient(gradient, opened, maps2, of_norm2.coefficients)
        of_weight2 = _weight_gradient(ctx.deferred, output1, of_maps2, weight2, 1) if needs_weight2 else None

        summed = launch.gated_input_gradient(of_maps2, weight2, Gate(maps1, coefficients1))
        of_norm1 = launch.finish_gradient(summed, gamma1, beta1, coefficients1)
        of_maps1, _ = launch.pass_gradient(summed.maps, None, maps1, of_norm1.coefficients)
        of_weight1 = _weight_gradient(ctx.deferred, maps, of_maps1, weight1, ctx.stride) if needs_weight1 else None

        of_maps = None
        if needs_maps:
            added = Added(passed, up=ctx.shortcut_stride) if ctx.is_identity else None
            height, width = maps.shape[2:]
            of_maps = launch.input_gradient(of_maps1, weight1, ctx.stride, height, width, added)
        of_shortcut = None if ctx.is_identity else passed
        return (
            of_maps, of_shortcut,
            of_weight1, of_norm1.gamma, of_norm1.beta, of_weight2, of_norm2.gamma, of_norm2.beta, None,
        )  # fmt: skip
