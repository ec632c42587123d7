"""Starts the 3x3 convolution kernels: geometry, grids and workspaces. Nothing here waits for the device.

Weights are contiguous or channels last: in both, the nine taps of a window lie at equal distances.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foster.kernels.compilation import start
from foster.kernels.epilogues import Added, Epilogue, Gate, Norm, channels_last, empty_maps
from foster.kernels.tiles import Geometry, convolution_tile


class Summed(NamedTuple):
    """Maps, and of each block of their pixels two sums for each channel: float32 [2, channels, blocks]."""

    maps: Tensor
    partials: Tensor


def forward_geometry(images: Tensor, weight: Tensor, stride: int) -> Geometry:
    _, in_channels, height, width = images.shape
    out_height, out_width = ((size - 1) // stride + 1 for size in (height, width))
    return Geometry(in_channels, weight.shape[0], height, width, out_height, out_width, down=stride, up=1)


def backward_geometry(gradient: Tensor, weight: Tensor, stride: int, height: int, width: int) -> Geometry:
    """The gradient for the images [N, in, height, width] from that of the output: a convolution, too."""
    out_channels, in_channels = weight.shape[:2]
    rows, columns = gradient.shape[2:]
    return Geometry(out_channels, in_channels, rows, columns, height, width, down=1, up=stride)


def convolve(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The convolution of images [N, in, H, W] with weight [out, in, 3, 3]: bfloat16, channels last."""
    return _convolve(images, _Taps.forward(weight), forward_geometry(images, weight, stride), Epilogue())[0]


def convolve_with_statistics(images: Tensor, weight: Tensor, stride: int) -> Summed:
    """The same, with the partial sums and sums of squares of the result, as it is stored: for BatchNorm."""
    geometry = forward_geometry(images, weight, stride)
    output, partials = _convolve(images, _Taps.forward(weight), geometry, Epilogue(has_partials=True))
    assert partials is not None
    return Summed(output, partials)


def convolve_frozen(
    images: Tensor, weight: Tensor, stride: int, norm: Norm, is_rectified: bool, added: Added | None = None
) -> Tensor:
    """The convolution, BatchNorm by its running statistics, an addition and ReLU, in one kernel."""
    geometry = forward_geometry(images, weight, stride)
    epilogue = Epilogue(norm=norm, added=added, is_rectified=is_rectified)
    return _convolve(images, _Taps.forward(weight), geometry, epilogue)[0]


def input_gradient(
    gradient: Tensor, weight: Tensor, stride: int, height: int, width: int, added: Added | None = None
) -> Tensor:
    """The gradient for the images [N, in, height, width] from that of the output, plus `added`."""
    geometry = backward_geometry(gradient, weight, stride, height, width)
    epilogue = Epilogue(added=added)
    return _convolve(gradient, _Taps.backward(weight), geometry, epilogue)[0]


def gated_input_gradient(gradient: Tensor, weight: Tensor, gate: Gate) -> Summed:
    """The gradient for what went into a ReLU before a convolution of stride 1, with the partial sums of it and of its
    product with the centred input of the BatchNorm in front: what that BatchNorm's gradient needs."""
    geometry = backward_geometry(gradient, weight, 1, *gate.maps.shape[2:])
    epilogue = Epilogue(gate=gate, has_partials=True)
    output, partials = _convolve(gradient, _Taps.backward(weight), geometry, epilogue)
    assert partials is not None
    return Summed(output, partials)


class _Taps(NamedTuple):
    """A weight as the kernel reads it: from output channel, contraction index and tap to a place in memory."""

    weight: Tensor
    stride_out: int
    stride_in: int
    stride_tap: int
    is_flipped: bool

    @classmethod
    def forward(cls, weight: Tensor) -> "_Taps":
        stride_out, stride_in, _, stride_tap = weight.stride()
        return cls(weight, stride_out, stride_in, stride_tap, False)

    @classmethod
    def backward(cls, weight: Tensor) -> "_Taps":
        taps = cls.forward(weight)
        return taps._replace(stride_out=taps.stride_in, stride_in=taps.stride_out, is_flipped=True)

    def strides(self) -> dict[str, int]:
        return {"stride_out": self.stride_out, "stride_in": self.stride_in, "stride_tap": self.stride_tap}


def _convolve(images: Tensor, taps: _Taps, geometry: Geometry, epilogue: Epilogue) -> tuple[Tensor, Tensor | None]:
    """The result, and its partial sums where the epilogue has some."""
    from foster.kernels import device

    images = channels_last(images)
    tile = convolution_tile(geometry)
    output = empty_maps(images, geometry.out_channels, geometry.out_height, geometry.out_width)
    num_pixels = len(images) * geometry.out_height * geometry.out_width
    num_blocks = math.ceil(num_pixels / tile.pixels)
    partials = None
    if epilogue.has_partials:
        partials = torch.empty((2, geometry.out_channels, num_blocks), dtype=torch.float32, device=images.device)
    options: dict[str, Any] = {**geometry._asdict(), **taps.strides(), **tile._asdict(), **epilogue.options()}
    options["taps_ahead"] = min(tile.taps_ahead, geometry.num_taps)
    start(
        device.convolve,
        (num_blocks, geometry.out_channels // tile.channels),
        images,
        taps.weight,
        output,
        num_pixels,
        *epilogue.arguments(partials),
        is_flipped=taps.is_flipped,
        is_even=num_pixels % tile.pixels == 0,
        num_warps=tile.num_warps,
        **options,
    )
    return output, partials
