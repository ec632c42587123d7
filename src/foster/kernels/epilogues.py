"""What a convolution kernel does with its sums before it stores them: the steps of a network that it can take along."""

from typing import NamedTuple

import torch
from torch import Tensor


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

    def options(self) -> dict[str, int]:
        _, channels, height, width = self.maps.shape
        return {
            "added_channels": channels,
            "added_height": height,
            "added_width": width,
            "added_down": self.down,
            "added_up": self.up,
        }


NOTHING_ADDED = dict.fromkeys(("added_channels", "added_height", "added_width", "added_down", "added_up"), 1)


class Gate(NamedTuple):
    """A ReLU behind a BatchNorm, by what went into the BatchNorm, [N, C, H, W], and by the BatchNorm's coefficients.

    In the backward pass, a gradient passes where the ReLU was open.
    """

    maps: Tensor
    coefficients: Tensor


class Epilogue(NamedTuple):
    """In this order: normalise, add, rectify, gate; store; and sum up what was stored, channel by channel."""

    norm: Norm | None = None
    added: Added | None = None
    is_rectified: bool = False
    gate: Gate | None = None
    has_partials: bool = False

    def arguments(self, partials: Tensor | None) -> tuple[Tensor | float | None, ...]:
        """The kernel's arguments; None for what is not done, which leaves it out of the compiled kernel."""
        norm, gate = self.norm, self.gate
        return (
            norm.gamma if norm else None,
            norm.beta if norm else None,
            norm.running_mean if norm else None,
            norm.running_var if norm else None,
            norm.eps if norm else 0.0,
            self.added.maps if self.added else None,
            gate.maps if gate else None,
            gate.coefficients if gate else None,
            partials,
        )

    def options(self) -> dict[str, int | bool]:
        """The kernel's compile-time options."""
        return {"is_rectified": self.is_rectified, **(self.added.options() if self.added else NOTHING_ADDED)}


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
