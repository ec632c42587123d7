"""Gradients of several layers' weights in one launch, with emulated kernels."""

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch
from block_reference import MOST_ERROR, Shape, error, exact, make_block, random_maps, random_weights
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from foster.data.feed import Batch
from foster.kernels import DeferredGradients, tiles, use_kernels
from foster.kernels.tiles import GradientTile
from foster.kernels.weight_gradients import WeightGradient, fill_weight_gradients
from foster.networks.resnet import small_stem
from foster.settings.fit import FitSettings
from foster.training.engine import Engine
from foster.training.optim import Optimizer
from foster.training.step import Step

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


@pytest.mark.parametrize(
    ("shape", "out_channels", "stride", "num_layers", "layout"),
    [
        (Shape(2, 16, 7, 5), 16, 1, 3, torch.channels_last),
        (Shape(3, 32, 5, 5), 64, 2, 2, torch.contiguous_format),
        (Shape(2, 3, 5, 9), 16, 1, 1, torch.channels_last),
        (Shape(1, 64, 5, 6), 16, 1, 1, torch.contiguous_format),
    ],
    ids=str,
)
def test_layers_of_one_shape_take_two_launches(
    shape: Shape, out_channels: int, stride: int, num_layers: int, layout: torch.memory_format, launches: list[str]
) -> None:
    layers = [random_layer(shape, out_channels, stride, layout, seed) for seed in range(num_layers)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)
    assert launches == ["weight_gradients", "sum_partial_sums"]


@pytest.mark.parametrize(("num_programs", "taps"), [(1, 1), (7, 3), (200, 9)])
def test_the_shares_of_the_pixels_do_not_change_a_batch(
    num_programs: int, taps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiles.BATCHED_GRADIENT_TILES, (16, 16), GradientTile(16, 2, taps, num_programs=num_programs))
    layers = [random_layer(Shape(5, 16, 6, 5), 16, seed=seed) for seed in range(3)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)


def test_the_tile_for_many_pixels_does_not_change_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MANY_PIXELS", 1)
    layers = [random_layer(Shape(2, 64, 6, 5), 64, seed=seed) for seed in range(2)]
    fill_weight_gradients(layers)
    assert_filled_right(layers)


def test_layers_of_several_shapes_are_sorted(launches: list[str]) -> None:
    shapes = [(Shape(2, 16, 6, 6), 16, 1), (Shape(2, 16, 6, 6), 32, 2), (Shape(2, 16, 4, 4), 16, 1)]
    layers = [random_layer(*shapes[index], seed=seed) for seed, index in enumerate((0, 1, 0, 2, 1))]
    layers.append(random_layer(*shapes[0], torch.contiguous_format))
    fill_weight_gradients(layers)
    assert_filled_right(layers)
    assert Counter(launches) == {"weight_gradients": 4, "sum_partial_sums": 4}


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    return [part.weight for part in module.modules() if isinstance(part, nn.Conv2d)]


def gradient_of(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize("make", [partial(make_block, "option_a"), partial(small_stem, 16)], ids=["block", "stem"])
def test_autograd_takes_over_room_that_is_filled_at_the_end(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = random_weights(make())
    maps = random_maps(Shape(2, weights_of(module)[0].shape[1], 4, 4))
    at_once, later = (use_kernels(copy.deepcopy(module)) for _ in range(2))
    at_once(maps).square().sum().backward()
    with DeferredGradients():
        later(maps).square().sum().backward()
        places = [gradient_of(weight).data_ptr() for weight in weights_of(later)]
        assert all(gradient_of(weight).isnan().all() for weight in weights_of(later)), "memory is poisoned here"
    for weight, place, expected in zip(weights_of(later), places, weights_of(at_once), strict=True):
        assert gradient_of(weight).data_ptr() == place
        assert gradient_of(weight).stride() == weight.stride()
        assert torch.equal(gradient_of(weight), gradient_of(expected))


def test_blocks_of_one_shape_share_their_launches(launches: list[str]) -> None:
    blocks = nn.Sequential(*(make_block("same") for _ in range(2)))
    maps = random_maps(Shape(2, 16, 5, 4))
    at_once, later = (use_kernels(copy.deepcopy(blocks)) for _ in range(2))
    at_once(maps).square().sum().backward()
    assert launches.count("weight_gradients") == 4
    launches.clear()
    with DeferredGradients():
        later(maps).square().sum().backward()
        assert not launches
    assert launches == ["weight_gradients", "sum_partial_sums"]
    for found, expected in zip(later.parameters(), at_once.parameters(), strict=True):
        assert error(gradient_of(found), gradient_of(expected)) < 1e-6


def test_two_uses_of_a_weight_give_the_sum() -> None:
    block = make_block("same")
    maps = random_maps(Shape(2, 16, 4, 4))
    plain = copy.deepcopy(block).double()
    exact(plain, exact(plain, maps.double())).sum().backward()
    use_kernels(block)
    with DeferredGradients():
        block(block(maps)).sum().backward()
    for found, expected in zip(block.parameters(), plain.parameters(), strict=True):
        assert error(gradient_of(found), gradient_of(expected)) < MOST_ERROR["gradient"]


def test_a_gradient_is_added_to_the_one_that_is_there() -> None:
    block, maps = use_kernels(make_block("same")), random_maps(Shape(2, 16, 4, 4))
    with DeferredGradients():
        block(maps).square().sum().backward()
    once = [gradient_of(weight).clone() for weight in weights_of(block)]
    with DeferredGradients():
        block(maps).square().sum().backward()
    for weight, gradient in zip(weights_of(block), once, strict=True):
        torch.testing.assert_close(gradient_of(weight), 2 * gradient)


def test_a_hook_sees_the_gradient() -> None:
    block, maps = use_kernels(make_block("same")), random_maps(Shape(2, 16, 4, 4))
    seen: list[Tensor] = []
    weights_of(block)[0].register_hook(lambda gradient: seen.append(gradient.clone()))
    with DeferredGradients():
        block(maps).square().sum().backward()
    (gradient,) = seen
    assert torch.equal(gradient, gradient_of(weights_of(block)[0]))


def _other_use(block: nn.Module, output: Tensor) -> None:
    (output.sum() + weights_of(block)[0].square().sum()).backward()


def _for_second_gradients(block: nn.Module, output: Tensor) -> None:
    output.sum().backward(create_graph=True)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("backward", [_other_use, _for_second_gradients])
def test_a_gradient_that_was_read_too_early_is_an_error(backward: Callable[[nn.Module, Tensor], None]) -> None:
    block = use_kernels(make_block("same"))
    with pytest.raises(RuntimeError, match=r"\(16, 16, 3, 3\)"), DeferredGradients():
        backward(block, block(random_maps(Shape(2, 16, 4, 4))))
    assert all(weight.grad is None for weight in weights_of(block))


def test_a_backward_pass_that_fails_leaves_no_room_unfilled(launches: list[str]) -> None:
    blocks = nn.Sequential(*(use_kernels(make_block("same")) for _ in range(2)))

    def fail(gradient: Tensor) -> Tensor:
        raise ValueError("in the middle")

    def run() -> None:
        with DeferredGradients():
            middle = blocks[0](random_maps(Shape(2, 16, 4, 4)))
            middle.register_hook(fail)
            blocks[1](middle).sum().backward()

    with pytest.raises(ValueError, match="in the middle"):
        run()
    assert not launches
    assert all(weight.grad is None for weight in weights_of(blocks))
    with DeferredGradients():
        blocks(random_maps(Shape(2, 16, 4, 4))).sum().backward()
    assert all(gradient_of(weight).isfinite().all() for weight in weights_of(blocks))


def test_a_step_may_compute_with_weights_outside_of_the_network() -> None:
    """As EWC does, whose loss has a penalty on the movement of weights."""
    network, plain = use_kernels(random_weights(small_stem(16))), random_weights(small_stem(16))
    plain.load_state_dict(network.state_dict())
    engine = Engine(torch.device("cpu"), (0.5,) * 3, (0.25,) * 3, torch.bfloat16, kernels=True)
    pixels = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    for module in (network, plain):

        def objective(images: Tensor, labels: Tensor, module: nn.Module = module) -> dict[str, Tensor]:
            (weight,) = weights_of(module)
            return {"L": module(images).float().square().mean(), "L_2": weight.square().sum()}

        optimizer = Optimizer(module, FitSettings(epochs=1, learning_rate=0.1), engine.device)
        step = Step(module, objective, optimizer, engine)
        for _ in range(2):
            step(Batch(pixels, torch.zeros(2, dtype=torch.int64)))
    for found, expected in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
