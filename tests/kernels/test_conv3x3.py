"""The 3x3 kernels against PyTorch in float32. On the CPU they are emulated; tests marked gpu run them as compiled."""

import copy
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from gluon_emulation import emulated_kernels
from torch import Tensor
from torch.nn import functional

from foster.kernels import is_available, launch, supports, tiles, use_kernels
from foster.kernels.launch import channels_last
from foster.kernels.tiles import ConvolutionTile, GradientTile
from foster.kernels.weight_gradients import weight_gradient
from foster.networks.resnet import cifar_resnet

MOST_ERROR = 5e-3
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not is_available(), reason="needs a GPU and Triton")]


class Shape(NamedTuple):
    num_images: int
    in_channels: int
    out_channels: int
    height: int
    width: int
    stride: int = 1


SMALL_SHAPES = [
    Shape(2, 16, 16, 8, 8),
    Shape(1, 16, 16, 32, 32),
    Shape(3, 32, 32, 4, 4),
    Shape(3, 64, 64, 8, 8),
    Shape(1, 64, 16, 5, 6),
    Shape(2, 16, 32, 8, 8, stride=2),
    Shape(3, 32, 64, 7, 5, stride=2),
    Shape(2, 3, 16, 8, 8),
    Shape(1, 3, 64, 9, 7, stride=2),
]

NETWORK_SHAPES = [
    Shape(num_images, *shape)
    for num_images in (128, 88, 1)
    for shape in (
        (16, 16, 32, 32),
        (32, 32, 16, 16),
        (64, 64, 8, 8),
        (16, 32, 32, 32, 2),
        (32, 64, 16, 16, 2),
        (3, 16, 32, 32),
    )
]


@pytest.fixture
def emulation() -> Iterator[None]:
    with emulated_kernels():
        yield


def random_inputs(shape: Shape, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Images, weight and output gradient."""
    num_images, in_channels, out_channels, height, width, stride = shape
    generator = torch.Generator().manual_seed(sum(shape))
    out_height, out_width = ((size - 1) // stride + 1 for size in (height, width))
    images = torch.randn(num_images, in_channels, height, width, generator=generator).to(device, torch.bfloat16)
    weight = torch.randn(out_channels, in_channels, 3, 3, generator=generator).to(device) / 8
    gradient = torch.randn(num_images, out_channels, out_height, out_width, generator=generator).to(
        device, torch.bfloat16
    )
    return images.contiguous(memory_format=torch.channels_last), weight, gradient


def exact(images: Tensor, weight: Tensor, gradient: Tensor, stride: int) -> list[Tensor]:
    """Output and both gradients in float32."""
    inputs = [images.detach().float().requires_grad_(), weight.detach().to(torch.bfloat16).float().requires_grad_()]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        output = functional.conv2d(*inputs, stride=stride, padding=1)
        return [output.detach(), *torch.autograd.grad(output, inputs, gradient.float())]


def error(found: Tensor, expected: Tensor) -> float:
    return ((found.detach().double() - expected).norm() / expected.norm()).item()


def assert_right(shape: Shape, weight_format: torch.memory_format, device: str) -> None:
    images, weight, gradient = random_inputs(shape, device)
    weight, gradient = weight.contiguous(memory_format=weight_format), channels_last(gradient)
    expected_output, expected_of_images, expected_of_weight = exact(images, weight, gradient, shape.stride)
    output = launch.convolve(images, weight, shape.stride)
    of_weight = weight_gradient(images, gradient, weight, shape.stride)
    pairs = [(output, expected_output), (of_weight, expected_of_weight)]
    if shape.in_channels != 3:  # there is no kernel for the gradient of images
        of_images = launch.input_gradient(gradient, weight, shape.stride, shape.height, shape.width)
        pairs.append((of_images, expected_of_images))
    for result, expected in pairs:
        assert result.shape == expected.shape
        assert error(result, expected) < MOST_ERROR
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert of_weight.dtype is torch.float32
    assert of_weight.stride() == weight.stride()


@pytest.mark.parametrize("weight_format", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("shape", SMALL_SHAPES, ids=str)
@pytest.mark.usefixtures("emulation", "poisoned_memory")
def test_output_and_gradients_equal_an_exact_convolution(shape: Shape, weight_format: torch.memory_format) -> None:
    assert_right(shape, weight_format, "cpu")


@pytest.mark.parametrize(
    "tile", [ConvolutionTile(64, 16, 2, 1, 3), ConvolutionTile(64, 64, 4, 2), ConvolutionTile(16, 32, 1, 2)]
)
@pytest.mark.usefixtures("emulation", "poisoned_memory")
def test_the_tile_does_not_change_the_convolution(tile: ConvolutionTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.CONVOLUTION_TILES, (64, 64), tile)
    assert_right(Shape(3, 64, 64, 5, 4), torch.channels_last, "cpu")


@pytest.mark.parametrize("taps", [1, 3, 9])
@pytest.mark.parametrize(("warps_out", "warps_in"), [(1, 1), (2, 4)])
@pytest.mark.usefixtures("emulation", "poisoned_memory")
def test_the_tile_does_not_change_the_weight_gradient(
    taps: int, warps_out: int, warps_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile = GradientTile(32, 2, taps, warps_out, warps_in, num_programs=3 * 9 // taps)
    monkeypatch.setitem(tiles.GRADIENT_TILES, (32, 32), tile)
    assert_right(Shape(5, 32, 32, 9, 6), torch.channels_last, "cpu")


def test_supported_are_narrow_windows_of_three() -> None:
    assert supports((128, 16, 32, 32), (16, 16, 3, 3))
    assert supports((1, 3, 32, 32), (16, 3, 3, 3))
    assert supports((128, 32, 16, 16), (64, 32, 3, 3), stride=2)
    assert not supports((128, 16, 32, 32), (16, 16, 1, 1))
    assert not supports((128, 16, 32, 32), (16, 16, 3, 3), stride=3)
    assert not supports((128, 128, 8, 8), (128, 128, 3, 3))
    assert not supports((2**17, 16, 32, 32), (16, 16, 3, 3)), "its elements cannot be counted in 32 bits"


class TestOnGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("shape", SMALL_SHAPES[3:] + NETWORK_SHAPES, ids=str)
    @pytest.mark.usefixtures("poisoned_memory")
    def test_output_and_gradients_equal_an_exact_convolution(self, shape: Shape) -> None:
        assert_right(shape, torch.channels_last, "cuda")

    @pytest.mark.usefixtures("poisoned_memory")
    def test_weights_may_lie_in_memory_as_they_are_made(self) -> None:
        assert_right(Shape(8, 16, 32, 32, 32), torch.contiguous_format, "cuda")

    def test_a_weight_gradient_is_the_same_in_every_run(self) -> None:
        images, weight, gradient = random_inputs(NETWORK_SHAPES[0], "cuda")
        first, *others = (weight_gradient(images, gradient, weight, 1) for _ in range(5))
        assert all(torch.equal(first, other) for other in others)

    def test_a_compiled_and_captured_network_equals_the_plain_one(self) -> None:
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

    def test_training_with_kernels_moves_weights_as_training_without(self) -> None:
        torch.manual_seed(0)
        plain = cifar_resnet(20).cuda().to(memory_format=torch.channels_last)
        networks = [plain, use_kernels(copy.deepcopy(plain))]
        images = torch.rand(32, 3, 32, 32, device="cuda")
        gradients = []
        for network in networks:
            with torch.autocast("cuda", torch.bfloat16):
                output = network(images)
            output.float().square().mean().backward()
            gradients.append([parameter.grad for parameter in network.parameters() if parameter.ndim == 4])
        for of_plain, of_kernels in itertools.zip_longest(*gradients):
            assert of_plain.stride() == of_kernels.stride()
            cosine = functional.cosine_similarity(of_plain.flatten(), of_kernels.flatten(), dim=0)
            assert cosine > 0.9
