"""Residual blocks and layers as single functions, compiled, at the shapes of ResNet-32; and training steps of them."""

import copy
from collections.abc import Iterator

import pytest
import torch
from block_reference import (
    MOST_ERROR,
    Shape,
    assert_trains_right,
    error,
    exact,
    make_block,
    random_maps,
    random_weights,
)
from torch import Tensor, nn
from torch.nn import functional

from foster.data.feed import Batch
from foster.kernels import DeferredGradients, is_available, tiles, use_kernels
from foster.kernels import weight_gradients as deferred_module
from foster.kernels.weight_gradients import WeightGradient, fill_weight_gradients, weight_gradient
from foster.networks import build_backbone
from foster.networks.resnet import cifar_resnet, small_stem
from foster.settings.fit import FitSettings
from foster.training.engine import Engine
from foster.training.optim import Optimizer
from foster.training.step import Step

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_available(), reason="needs a GPU and Triton")]


@pytest.fixture(autouse=True)
def exact_library() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("num_images", [128, 88, 3])
@pytest.mark.parametrize(
    ("kind", "channels", "size"),
    [
        ("same", 16, 32),
        ("same", 32, 16),
        ("same", 64, 8),
        ("same", 64, 7),
        ("no_relu", 64, 8),
        ("option_a", 16, 32),
        ("option_a", 32, 16),
        ("projection", 16, 32),
        ("projection", 32, 16),
    ],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_a_block_trains_and_infers_as_the_exact_one(kind: str, channels: int, size: int, num_images: int) -> None:
    block = make_block(kind, channels).cuda()
    maps = random_maps(Shape(num_images, channels, size, size), "cuda")
    assert_trains_right(copy.deepcopy(block), maps)
    block.eval()
    with torch.no_grad():
        expected = exact(copy.deepcopy(block).double(), maps.double())
        with torch.autocast("cuda", torch.bfloat16):
            found = use_kernels(block)(maps)
    assert error(found, expected) < MOST_ERROR["output"]


@pytest.mark.parametrize("num_images", [128, 3])
@pytest.mark.usefixtures("poisoned_memory")
def test_a_block_with_the_tiles_for_many_pixels_trains_as_the_exact_one(
    num_images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "MANY_PIXELS", 0)
    assert_trains_right(make_block("same", 64).cuda(), random_maps(Shape(num_images, 64, 8, 8), "cuda"))


@pytest.mark.parametrize("num_images", [128, 88, 3])
@pytest.mark.usefixtures("poisoned_memory")
def test_a_stem_trains_and_infers_as_the_exact_one(num_images: int) -> None:
    torch.manual_seed(0)
    stem = random_weights(small_stem(16)).cuda()
    images = random_maps(Shape(num_images, 3, 32, 32), "cuda")
    assert_trains_right(copy.deepcopy(stem), images)
    stem.eval()
    with torch.no_grad():
        expected = exact(copy.deepcopy(stem).double(), images.double())
        with torch.autocast("cuda", torch.bfloat16):
            found = use_kernels(stem)(images)
    assert error(found, expected) < MOST_ERROR["output"]


@pytest.mark.parametrize("name", ["resnet32", "cosine_resnet32"])
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "frozen"])
def test_a_fused_network_is_as_near_to_float32_as_the_plain_one_in_bfloat16(name: str, is_training: bool) -> None:
    torch.manual_seed(0)
    network = random_weights(build_backbone(name)).cuda().train(is_training)
    images = torch.rand(128, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)

    def outcome(network: nn.Module, dtype: torch.dtype) -> Tensor:
        with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32), torch.set_grad_enabled(is_training):
            features = network(images)
        if not is_training:
            return features.detach().double()
        features.float().square().mean().backward()
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        assert len(gradients) == len(list(network.parameters()))
        # Each gradient has its own size; here all count alike.
        return torch.cat([gradient.flatten().double() / gradient.norm() for gradient in gradients])

    in_float32, plain = (outcome(copy.deepcopy(network), dtype) for dtype in (torch.float32, torch.bfloat16))
    fused = outcome(use_kernels(copy.deepcopy(network)), torch.bfloat16)
    assert error(fused, in_float32) < 1.2 * error(plain, in_float32)


def trained(is_captured: bool, images: list[Tensor]) -> list[Tensor]:
    """All weights and statistics of a network after some steps on `images`."""
    torch.manual_seed(0)
    network = use_kernels(cifar_resnet(20).cuda().to(memory_format=torch.channels_last))
    engine = Engine(torch.device("cuda"), (0.5,) * 3, (0.25,) * 3, torch.bfloat16, capture=is_captured, kernels=True)
    optimizer = Optimizer(network, FitSettings(epochs=1, learning_rate=0.1), engine.device)

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": functional.cross_entropy(network(images), labels)}

    step = Step(network, objective, optimizer, engine)
    if is_captured:
        sizes = sorted({len(batch) for batch in images}, reverse=True)
        step.record(sizes, lambda size: labelled(random_batches(size)[0]))
    for batch in images:
        step(labelled(batch))
    return [tensor.detach().clone() for tensor in network.state_dict().values()]


def labelled(images: Tensor) -> Batch:
    return Batch(images, torch.arange(len(images), device="cuda") % 64)


def random_batches(*sizes: int) -> list[Tensor]:
    chance = torch.Generator("cuda").manual_seed(0)
    return [torch.randint(256, (size, 3, 32, 32), dtype=torch.uint8, device="cuda", generator=chance) for size in sizes]


def test_recorded_steps_equal_plain_ones_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    num_deferred: list[int] = []

    def count(layers: list[WeightGradient]) -> None:
        num_deferred.append(len(layers))
        fill_weight_gradients(layers)

    monkeypatch.setattr(deferred_module, "fill_weight_gradients", count)
    images = random_batches(128, 128, 88, 128, 88)
    plain, recorded, again = (trained(is_captured, images) for is_captured in (False, True, True))
    assert set(num_deferred) == {19}, "the stem and both convolutions of nine blocks, in every step"
    for one, other, third in zip(plain, recorded, again, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)
        assert torch.equal(other, third)


@pytest.mark.parametrize("num_images", [128, 88, 3])
@pytest.mark.parametrize(
    ("in_channels", "out_channels", "size", "stride", "num_layers"),
    [
        (16, 16, 32, 1, 10),
        (32, 32, 16, 1, 9),
        (64, 64, 8, 1, 9),
        (64, 64, 7, 1, 2),
        (16, 32, 32, 2, 3),
        (3, 16, 32, 1, 2),
    ],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_weight_gradients_in_batches_equal_those_one_by_one(
    in_channels: int, out_channels: int, size: int, stride: int, num_layers: int, num_images: int
) -> None:
    small = (size - 1) // stride + 1
    torch.manual_seed(0)

    def maps(channels: int, size: int) -> Tensor:
        values = torch.randn(num_images, channels, size, size, device="cuda").to(torch.bfloat16)
        return values.contiguous(memory_format=torch.channels_last)

    weight = torch.zeros(out_channels, in_channels, 3, 3, device="cuda").contiguous(memory_format=torch.channels_last)
    layers = [
        WeightGradient.of(maps(in_channels, size), maps(out_channels, small), weight, stride) for _ in range(num_layers)
    ]
    fill_weight_gradients(layers)
    first = [layer.result.clone() for layer in layers]
    fill_weight_gradients(layers)
    for images, gradient, _, result in layers:
        assert error(result, weight_gradient(images, gradient, weight, stride)) < 1e-4
    assert all(torch.equal(once, layer.result) for once, layer in zip(first, layers, strict=True))


def test_deferred_gradients_equal_those_at_once() -> None:
    torch.manual_seed(0)
    network = use_kernels(cifar_resnet(32).cuda().to(memory_format=torch.channels_last))
    images = torch.rand(128, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)

    def gradients(network: nn.Module) -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            output = network(images)
        output.square().mean().backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    at_once = gradients(copy.deepcopy(network))
    with DeferredGradients():
        deferred = gradients(network)
    for one, other in zip(at_once, deferred, strict=True):
        assert error(other, one) < 1e-3


def test_a_compiled_and_captured_network_equals_the_plain_one() -> None:
    torch.manual_seed(0)
    network = cifar_resnet(20).cuda().to(memory_format=torch.channels_last).eval()
    images = torch.rand(32, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        expected = network(images).double()
        compiled = torch.compile(use_kernels(copy.deepcopy(network)), fullgraph=True)
        for _ in range(2):
            compiled(images)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = compiled(images)
        graph.replay()
    # Two networks in bfloat16 differ by their rounding, layer after layer.
    assert error(output, expected) < 3e-2
