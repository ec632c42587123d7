"""What a convolution kernel does with its sums before it stores them: the steps of a network that it can take along."""

from typing import NamedTuple

import torch
from torch import Tensor

from foster.kernels.tiles import Geometry


class Norm(NamedTuple):
    """A BatchNorm: its parameters, its running statistics, which training updates in place, and its settings."""

    gamma: Tensor
    beta: Tensor
    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float


class Added(NamedTuple):
    """Maps [N, C, H, W] to add to a result whose rows and columns are `down` times fewer, or `up` times more.

    Pixels of the result between those of the maps, and channels that the maps do not have, get nothing.
    """

    maps: Tensor
    down: int = 1
    up: int = 1

    def shape(self, height: int, width: int) -> Geometry:
        """How the maps lie under a result of `height` x `width`."""
        _, channels, rows, columns = self.maps.shape
        return Geometry(channels, channels, rows, columns, height, width, self.down, self.up)


class Gate(NamedTuple):
    """A ReLU behind a BatchNorm, by what went into the BatchNorm, [N, C, H, W], and by the BatchNorm's coefficients.

    In the backward pass, a gradient passes where the ReLU was open.
    """

    maps: Tensor
    coefficients: Tensor


def channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def empty_maps(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Room for bfloat16 maps [N, channels, height, width], channels last, beside `like`."""
    return torch.empty(
        (like.shape[0], channels, height, width),
        dtype=torch.bfloat16,
        device=like.device,
        memory_format=torch.channels_last,
    )
