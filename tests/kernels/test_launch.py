"""The convolution kernels, emulated, with what they take along: sums, a frozen BatchNorm, an addition and a gate."""

import pytest
import torch
from block_reference import error
from torch import Tensor
from torch.nn import functional

from foster.kernels.launch import (
    Added,
    Gate,
    Norm,
    convolve_frozen,
    convolve_with_statistics,
    empty_maps,
    gated_input_gradient,
    input_gradient,
)
from foster.kernels.tiles import Geometry

pytestmark = pytest.mark.usefixtures("emulation")

MOST_ERROR = 5e-3
"""Of what is stored in bfloat16."""

CHANNELS, SIZE = 16, 7


def random(*shape: int, seed: int = 0) -> Tensor:
    maps = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    return maps.contiguous(memory_format=torch.channels_last)


def weights(out_channels: int = CHANNELS) -> Tensor:
    return random(out_channels, CHANNELS, 3, 3, seed=9).float() / 8


def exact(images: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    return functional.conv2d(images.double(), weight.double(), stride=stride, padding=1)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_brings_the_sums_of_what_it_stored(stride: int) -> None:
    images, weight = random(3, CHANNELS, SIZE, SIZE), weights(32)
    found = convolve_with_statistics(images, weight, stride)
    assert error(found.maps, exact(images, weight, stride)) < MOST_ERROR
    stored = found.maps.float().permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(found.partials[0].sum(1), stored.sum(1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.partials[1].sum(1), stored.square().sum(1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("is_rectified", [True, False])
def test_a_frozen_layer_is_normalised_added_to_and_rectified_in_this_order(is_rectified: bool) -> None:
    images, weight, shortcut = random(2, CHANNELS, SIZE, SIZE), weights(), random(2, CHANNELS, SIZE, SIZE, seed=1)
    chance = torch.Generator().manual_seed(4)
    gamma, beta, mean, var = (0.5 + torch.rand(CHANNELS, generator=chance) for _ in range(4))
    found = convolve_frozen(images, weight, 1, Norm(gamma, beta, mean, var, 0.1, 1e-5), is_rectified, Added(shortcut))
    statistics = [tensor.double() for tensor in (mean, var, gamma, beta)]
    expected = functional.batch_norm(exact(images, weight), *statistics, eps=1e-5) + shortcut.double()
    assert error(found, expected.clamp(min=0) if is_rectified else expected) < MOST_ERROR


@pytest.mark.parametrize(("stride", "size"), [(1, 7), (2, 7), (2, 8)])
def test_the_gradient_of_the_images_is_that_of_torch_plus_what_is_added(stride: int, size: int) -> None:
    weight = weights(32)
    out_size = (size - 1) // stride + 1
    gradient, other = random(2, 32, out_size, out_size, seed=2), random(2, CHANNELS, size, size, seed=3)
    found = input_gradient(gradient, weight, stride, size, size, Added(other))
    expected = torch.nn.grad.conv2d_input(other.shape, weight.double(), gradient.double(), stride, padding=1)
    assert error(found, expected + other.double()) < MOST_ERROR


def test_a_gradient_passes_where_the_rectifier_was_open_and_is_summed_for_the_norm_in_front() -> None:
    weight, gradient = weights(), random(2, CHANNELS, SIZE, SIZE, seed=2)
    maps = random(2, CHANNELS, SIZE, SIZE, seed=5)
    chance = torch.Generator().manual_seed(6)
    mean, inverse, scale, shift = (torch.rand(CHANNELS, generator=chance) - 0.3 for _ in range(4))
    coefficients = torch.stack([mean, inverse, scale, shift])
    found = gated_input_gradient(gradient, weight, Gate(maps, coefficients))
    wide = (slice(None), None, None)
    is_open = maps.float() * scale[wide] + shift[wide] > 0
    full = torch.nn.grad.conv2d_input(maps.shape, weight.double(), gradient.double(), 1, padding=1)
    assert error(found.maps, full * is_open) < MOST_ERROR
    stored = found.maps.float()
    centred = stored * (maps.float() - mean[wide])
    torch.testing.assert_close(found.partials[0].sum(1), stored.sum((0, 2, 3)), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(found.partials[1].sum(1), centred.sum((0, 2, 3)), rtol=1e-3, atol=1e-2)


def test_maps_that_are_added_are_told_by_their_own_shape_and_that_of_the_result() -> None:
    maps = torch.zeros(2, 3, 5, 7)
    assert Added(maps, down=2).shape(3, 4) == Geometry(3, 3, 5, 7, 3, 4, down=2, up=1)
    assert Added(maps, up=2).shape(10, 14) == Geometry(3, 3, 5, 7, 10, 14, down=1, up=2)


def test_room_for_maps_is_bfloat16_and_channels_last() -> None:
    maps = empty_maps(torch.zeros(4, 1), 16, 3, 5)
    assert (maps.shape, maps.dtype) == ((4, 16, 3, 5), torch.bfloat16)
    assert maps.is_contiguous(memory_format=torch.channels_last)
