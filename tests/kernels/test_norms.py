"""The BatchNorm kernels, one by one and emulated, against PyTorch's own BatchNorm in float64."""

import pytest
import torch
from block_reference import error
from torch import Tensor
from torch.nn import functional

from foster.kernels.launch import Added, Norm, Summed
from foster.kernels.norms import finish_gradient, finish_statistics, normalise, pass_gradient, sum_gradient

pytestmark = pytest.mark.usefixtures("emulation")

MOST_ERROR = 5e-3
"""Of what is stored in bfloat16."""

SHAPE = (3, 16, 9, 11)
MOMENTUM, EPS = 0.1, 1e-5


def random_maps(seed: int) -> Tensor:
    maps = 0.5 + torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return maps.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


def random_norm() -> Norm:
    chance = torch.Generator().manual_seed(7)
    gamma, beta, mean, var = (0.5 + torch.rand(SHAPE[1], generator=chance) for _ in range(4))
    return Norm(gamma, beta, mean, var, MOMENTUM, EPS)


def summed(maps: Tensor) -> Summed:
    """The sums of all pixels and of their squares, in two blocks."""
    halves = maps.float().permute(1, 0, 2, 3).flatten(1).tensor_split(2, dim=1)
    partials = torch.stack([torch.stack([half.sum(1), half.square().sum(1)]) for half in halves], dim=2)
    return Summed(maps, partials.contiguous())


def test_statistics_are_those_of_the_batch_and_move_the_running_ones() -> None:
    maps, norm = random_maps(0), random_norm()
    mean, var = norm.running_mean.double(), norm.running_var.double()
    functional.batch_norm(maps.double(), mean, var, training=True, momentum=MOMENTUM, eps=EPS)
    found = finish_statistics(summed(maps), norm)
    torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.running_var.double(), var, rtol=1e-5, atol=1e-5)
    of_channels = maps.double().permute(1, 0, 2, 3).flatten(1)
    inverse = 1 / (of_channels.var(1, correction=0) + EPS).sqrt()
    scale = norm.gamma.double() * inverse
    expected = torch.stack([of_channels.mean(1), inverse, scale, norm.beta.double() - scale * of_channels.mean(1)])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_rectified", [True, False])
@pytest.mark.parametrize("is_added", [True, False])
def test_normalised_maps_are_those_of_torch(is_rectified: bool, is_added: bool) -> None:
    maps, norm, shortcut = random_maps(0), random_norm(), random_maps(1)
    expected = functional.batch_norm(maps.double(), None, None, norm.gamma.double(), norm.beta.double(), True, eps=EPS)
    expected = expected + shortcut.double() if is_added else expected
    expected = expected.clamp(min=0) if is_rectified else expected
    found = normalise(maps, finish_statistics(summed(maps), norm), is_rectified, Added(shortcut) if is_added else None)
    assert error(found, expected) < MOST_ERROR
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_gradients_of_maps_and_parameters_are_those_of_torch() -> None:
    maps, gradient, norm = random_maps(0), random_maps(2), random_norm()
    coefficients = finish_statistics(summed(maps), norm)
    opened = normalise(maps, coefficients, is_rectified=True)
    of_norm = finish_gradient(sum_gradient(gradient, opened, maps, coefficients), norm.gamma, norm.beta, coefficients)
    found, passed = pass_gradient(gradient, opened, maps, of_norm.coefficients)

    inputs = [tensor.double().requires_grad_() for tensor in (maps, norm.gamma, norm.beta)]
    output = functional.batch_norm(inputs[0], None, None, *inputs[1:], training=True, eps=EPS)
    let_through = gradient.double() * (opened > 0)
    expected = torch.autograd.grad(output, inputs, let_through)
    assert torch.equal(passed.double(), let_through)
    for ours, theirs in zip((found, of_norm.gamma, of_norm.beta), expected, strict=True):
        assert error(ours, theirs) < MOST_ERROR
