"""Starts the BatchNorm kernels. All maps are bfloat16, channels last; all sums are float32, always in one order.

A BatchNorm of a training step is split where the device must have seen all pixels: sums of blocks of pixels
(`partials`, float32 [2, channels, blocks]), one small kernel that turns them into a few numbers for each channel
(`coefficients`), and one pass over the maps that uses these.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foster.kernels.compilation import start
from foster.kernels.launch import Added, Norm, Summed, empty_maps
from foster.kernels.tiles import NORM_ELEMENTS

NUM_WARPS = 4
FINISHING: dict[str, Any] = {"size": 512, "warps": NUM_WARPS, "num_warps": NUM_WARPS}
"""Options of the kernels that add up partial sums, one program for each channel, 512 blocks at a time."""


def num_pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[1]


def finish_statistics(summed: Summed, norm: Norm) -> Tensor:
    """Mean, 1 / standard deviation, scale and shift of each channel: float32 [4, channels].

    Updates the running statistics as `nn.BatchNorm2d` does, but for `num_batches_tracked`: with a fixed momentum nobody
    reads it, and counting would be one more kernel.
    """
    from foster.kernels import device

    count, channels = num_pixels(summed.maps), summed.maps.shape[1]
    coefficients = torch.empty((4, channels), dtype=torch.float32, device=summed.maps.device)
    start(
        device.finish_statistics,
        (channels,),
        summed.partials,
        norm.gamma,
        norm.beta,
        norm.running_mean,
        norm.running_var,
        coefficients,
        summed.partials.shape[2],
        1 / count,
        count / (count - 1),
        norm.momentum,
        norm.eps,
        **FINISHING,
    )
    return coefficients


def normalise(maps: Tensor, coefficients: Tensor, is_rectified: bool, added: Added | None = None) -> Tensor:
    """maps x scale + shift, plus `added`, and ReLU."""
    from foster.kernels import device

    channels, height, width = maps.shape[1:]
    output = empty_maps(maps, channels, height, width)
    start(
        device.normalise,
        _grid(maps),
        maps,
        coefficients,
        added and added.maps,
        output,
        num_pixels(maps),
        added_shape=added and added.shape(height, width),
        is_rectified=is_rectified,
        **_tile(maps),
    )
    return output


def sum_gradient(gradient: Tensor, opened: Tensor | None, maps: Tensor, coefficients: Tensor) -> Summed:
    """Of the gradient behind a BatchNorm of `maps`, the partial sums of it and of its product with the centred maps.

    `opened` is the output of the ReLU behind: the gradient counts where it is above zero.
    """
    from foster.kernels import device

    (num_blocks,) = _grid(maps)
    partials = torch.empty((2, maps.shape[1], num_blocks), dtype=torch.float32, device=maps.device)
    start(
        device.sum_gradient,
        (num_blocks,),
        gradient,
        opened,
        maps,
        coefficients,
        partials,
        num_pixels(maps),
        **_tile(maps),
    )
    return Summed(gradient, partials)


class NormGradient(NamedTuple):
    """Gradients of a BatchNorm's parameters, and what its input's gradient needs: A, B and D, float32 [3, channels]."""

    gamma: Tensor
    beta: Tensor
    coefficients: Tensor


def finish_gradient(summed: Summed, gamma: Tensor, beta: Tensor, coefficients: Tensor) -> NormGradient:
    """From the partial sums of `sum_gradient` and the coefficients of the forward pass."""
    from foster.kernels import device

    channels = len(gamma)
    result = NormGradient(
        torch.empty_like(gamma),
        torch.empty_like(beta),
        torch.empty((3, channels), dtype=torch.float32, device=gamma.device),
    )
    start(
        device.finish_gradient,
        (channels,),
        summed.partials,
        coefficients,
        *result,
        summed.partials.shape[2],
        1 / num_pixels(summed.maps),
        **FINISHING,
    )
    return result


def pass_gradient(gradient: Tensor, opened: Tensor | None, maps: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient for `maps`, A x gradient + B x maps + D, and the gradient as the ReLU behind lets it pass."""
    from foster.kernels import device

    result = empty_maps(maps, *maps.shape[1:])
    passed = None if opened is None else torch.empty_like(result)
    start(
        device.pass_gradient,
        _grid(maps),
        gradient,
        opened,
        maps,
        coefficients,
        result,
        passed,
        num_pixels(maps),
        **_tile(maps),
    )
    return result, gradient if passed is None else passed


def _grid(maps: Tensor) -> tuple[int]:
    return (math.ceil(maps.numel() / NORM_ELEMENTS),)


def _tile(maps: Tensor) -> dict[str, int]:
    channels = maps.shape[1]
    return {"channels": channels, "pixels": NORM_ELEMENTS // channels, "warps": NUM_WARPS, "num_warps": NUM_WARPS}
