"""Gradients of several layers' weights in one launch, with emulated kernels."""

from collections import Counter

import pytest
import torch
from block_reference import Shape, error
from torch.nn.grad import conv2d_weight

from foster.kernels import tiles, weight_gradients
from foster.kernels.tiles import GradientTile
from foster.kernels.weight_gradients import WeightGradient, fill_weight_gradients

pytestmark = pytest.mark.usefixtures("emulation")


def random_layer(
    shape: Shape, out_channels: int, stride: int = 1, layout: torch.memory_format = torch.channels_last, seed: int = 0
) -> WeightGradient:
    chance = torch.Generator().manual_seed(seed)
    images = torch.randn(tuple(shape), generator=chance).to(torch.bfloat16)
    height, width = ((size - 1) // stride + 1 for size in (shape.height, shape.width))
    gradient = torch.randn(shape.num_images, out_channels, height, width, generator=chance).to(torch.bfloat16)
    weight = torch.zeros(out_channels, shape.channels, 3, 3).contiguous(memory_format=layout)
    return WeightGradient.of(images, gradient, weight, stride)


def assert_filled_right(layers: list[WeightGradient]) -> None:
    for images, gradient, stride, result in layers:
        expected = conv2d_weight(images.double(), result.shape, gradient.double(), stride, 1)
        assert error(result, expected) < 1e-6


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize(
    ("shape", "out_channels", "stride"),
    [(Shape(2, 16, 7, 5), 16, 1), (Shape(3, 32, 5, 5), 64, 2), (Shape(2, 3, 5, 9), 16, 1)],
    ids=str,
)
def test_layers_of_one_shape_take_two_launches(
    shape: Shape, out_channels: int, stride: int, num_layers: int, layout: torch.memory_format, launches: list[str]
) -> None:
    layers = [random_layer(shape, out_channels, stride, layout, seed) for seed in range(num_layers)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)
    assert launches == ["weight_gradients", "sum_partial_sums"]


@pytest.mark.parametrize("num_programs", [1, 7, 200])
@pytest.mark.parametrize("taps", [1, 3, 9])
def test_the_shares_of_the_pixels_do_not_change_a_batch(
    num_programs: int, taps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiles.BATCHED_GRADIENT_TILES, (16, 16), GradientTile(16, 2, taps, num_programs=num_programs))
    layers = [random_layer(Shape(5, 16, 6, 5), 16, seed=seed) for seed in range(3)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)


def test_layers_of_several_shapes_are_sorted(launches: list[str]) -> None:
    shapes = [(Shape(2, 16, 6, 6), 16, 1), (Shape(2, 16, 6, 6), 32, 2), (Shape(2, 16, 4, 4), 16, 1)]
    layers = [random_layer(*shapes[index], seed=seed) for seed, index in enumerate((0, 1, 0, 2, 1))]
    layers.append(random_layer(*shapes[0], torch.contiguous_format))
    fill_weight_gradients(layers)
    assert_filled_right(layers)
    assert Counter(launches) == {"weight_gradients": 4, "sum_partial_sums": 4}


def test_more_layers_than_one_launch_takes(launches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_gradients, "MOST_LAYERS", 2)
    layers = [random_layer(Shape(1, 16, 5, 5), 16, seed=seed) for seed in range(5)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)
    assert launches.count("weight_gradients") == 3
