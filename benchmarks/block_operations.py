"""The kernels of fused residual blocks as operations to be timed, each with its result in float32 and its traffic."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from foster.kernels import launch, norms
from foster.kernels.launch import Added, Gate, Norm, Summed
from foster.kernels.tiles import NORM_ELEMENTS
from foster.kernels.weight_gradients import WeightGradient, fill_weight_gradients

Call = Callable[[int], Tensor | tuple[Tensor, ...]]
"""A function of the index of the input set; results that are several have one shape."""


class Operation(NamedTuple):
    """What is timed, what it must return for the first input set (several results stacked), and the maps it moves."""

    call: Call
    expected: Tensor
    num_bytes: int
    is_convolution: bool = False
    """Whether the tiles of convolutions count for it."""
    num_layers: int = 1
    """How many layers one call computes; `num_bytes` are those of one."""


def block_operations(
    images: list[Tensor], gradients: list[Tensor], weight: Tensor, stride: int, exact: dict[str, Tensor]
) -> dict[str, Operation]:
    """By name. `exact` has the convolution of the first set and its input gradient, in float32.

    As in a network, no operation gets a tensor twice: it would find it in the cache.
    """
    out_channels, in_channels = weight.shape[:2]
    size = images[0].shape[2]
    norm = _random_norm(out_channels, weight.device)
    scale = norm.gamma * (norm.running_var + norm.eps).rsqrt()
    normalised = _by_channel(scale, norm.beta - norm.running_mean * scale, exact["forward"])
    small, large = gradients[0].nbytes, images[0].nbytes
    other = _other_set(len(images))
    operations = {
        "statistics": Operation(
            lambda i: launch.convolve_with_statistics(images[i], weight, stride).maps,
            exact["forward"],
            small + large,
            is_convolution=True,
        ),
        "frozen": Operation(
            lambda i: launch.convolve_frozen(images[i], weight, stride, norm, True),
            normalised.relu(),
            small + large,
            is_convolution=True,
        ),
    }
    if in_channels != 3:
        with_shortcut = exact["input"].clone()
        with_shortcut[:, :, ::stride, ::stride] += gradients[other(0)][:, :in_channels].float()
        operations["input +"] = Operation(
            lambda i: launch.input_gradient(
                gradients[i], weight, stride, size, size, Added(gradients[other(i)], up=stride)
            ),
            with_shortcut,
            small + small * in_channels // out_channels + large,
            is_convolution=True,
        )
    if stride == 1 and in_channels == out_channels:
        operations |= _of_one_shape(images, gradients, weight, norm, exact, normalised)
    return operations


def weights_in_batches(
    images: list[Tensor], gradients: list[Tensor], weight: Tensor, stride: int, expected: Tensor, num_layers: int = 10
) -> Operation:
    """The gradients of the weights of several layers in one launch; `expected` is that of the first set."""
    results = [torch.empty_like(weight) for _ in range(num_layers)]

    def fill(first: int) -> Tensor:
        sets = [(first + layer) % len(images) for layer in range(num_layers)]
        fill_weight_gradients([
            WeightGradient(images[index], gradients[index], stride, result)
            for index, result in zip(sets, results, strict=True)
        ])  # fmt: skip
        return results[0]

    return Operation(fill, expected, images[0].nbytes + gradients[0].nbytes, num_layers=num_layers)


def _of_one_shape(
    images: list[Tensor],
    gradients: list[Tensor],
    weight: Tensor,
    norm: Norm,
    exact: dict[str, Tensor],
    normalised: Tensor,
) -> dict[str, Operation]:
    channels, traffic = len(weight), images[0].nbytes
    other = _other_set(len(images))
    # `opened` stands for what came out of the ReLU behind a BatchNorm and, in a frozen block, for its shortcut.
    maps, gradient, opened = images[0].float(), gradients[0].float(), images[other(0)].float()
    mean, deviation = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
    scale = norm.gamma * deviation
    coefficients = torch.stack([mean, deviation, scale, norm.beta - mean * scale])
    by_batch = _by_channel(coefficients[2], coefficients[3], maps)
    passed = gradient * (opened > 0)
    partials = torch.stack([_partial_sums(passed), _partial_sums(passed * (maps - mean[:, None, None]))])
    sums, count = partials.sum(2), norms.num_pixels(maps)
    of_maps = -scale * deviation**2 * sums[1] / count
    by_gradient = torch.stack([scale, of_maps, -scale * sums[0] / count - of_maps * mean])
    summed = Summed(images[0], torch.stack([_partial_sums(maps), _partial_sums(maps**2)]))
    total_mean = maps.mean((0, 2, 3))
    total_deviation = (maps.var((0, 2, 3), unbiased=False) + norm.eps).rsqrt()
    total_scale = norm.gamma * total_deviation
    finished = torch.stack([total_mean, total_deviation, total_scale, norm.beta - total_mean * total_scale])
    # Timing updates running statistics again and again: not those of the norm that gives the expected results.
    spare = norm._replace(running_mean=mean.clone(), running_var=norm.running_var.clone())
    without_relu = _by_channel(by_gradient[0], torch.zeros(channels, device=maps.device), gradient)
    constant = _by_channel(by_gradient[1], by_gradient[2], maps)
    return {
        "frozen +": Operation(
            lambda i: launch.convolve_frozen(images[i], weight, 1, norm, True, Added(images[other(i)])),
            (normalised + opened).relu(),
            3 * traffic,
            is_convolution=True,
        ),
        "gated": Operation(
            lambda i: launch.gated_input_gradient(gradients[i], weight, Gate(images[i], coefficients)).maps,
            exact["input"] * (by_batch > 0),
            3 * traffic,
            is_convolution=True,
        ),
        "finish": Operation(lambda i: norms.finish_statistics(summed, spare), finished, summed.partials.nbytes),
        "normalise": Operation(lambda i: norms.normalise(images[i], coefficients, True), by_batch.relu(), 2 * traffic),
        "normalise +": Operation(
            lambda i: norms.normalise(images[i], coefficients, True, Added(gradients[i])),
            (by_batch + gradient).relu(),
            3 * traffic,
        ),
        "sum grad": Operation(
            lambda i: norms.sum_gradient(gradients[i], images[other(i)], images[i], coefficients).partials,
            partials,
            3 * traffic,
        ),
        "finish grad": Operation(
            lambda i: (
                norms.finish_gradient(Summed(images[0], partials), norm.gamma, norm.beta, coefficients).coefficients
            ),
            by_gradient,
            partials.nbytes,
        ),
        "pass grad": Operation(
            lambda i: norms.pass_gradient(gradients[i], None, images[i], by_gradient)[0],
            constant + without_relu,
            3 * traffic,
        ),
        "pass grad +": Operation(
            lambda i: norms.pass_gradient(gradients[i], images[other(i)], images[i], by_gradient),
            torch.stack([constant + without_relu * (opened > 0), passed]),
            5 * traffic,
        ),
    }


def _other_set(num_sets: int) -> Callable[[int], int]:
    """To a set's index, that of the one that is farthest in time: what the last call has read may still be cached."""
    return lambda index: (index + num_sets // 2) % num_sets


def _random_norm(channels: int, device: torch.device) -> Norm:
    generator = torch.Generator(device).manual_seed(channels)
    gamma, beta, mean, variance = torch.rand(4, channels, device=device, generator=generator)
    return Norm(gamma + 0.5, beta - 0.5, mean - 0.5, variance + 0.5, 0.1, 1e-5)


def _by_channel(scale: Tensor, shift: Tensor, maps: Tensor) -> Tensor:
    return maps * scale[:, None, None] + shift[:, None, None]


def _partial_sums(maps: Tensor) -> Tensor:
    """Of each block of pixels that one program takes, the sum of each channel: [channels, blocks]."""
    channels = maps.shape[1]
    rows = maps.permute(0, 2, 3, 1).reshape(-1, channels)
    return torch.stack([block.sum(0) for block in rows.split(NORM_ELEMENTS // channels)], dim=1).contiguous()
