"""Small linear layers in float32 against float64. On the CPU the kernels are emulated; tests marked gpu run them as
compiled."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foster.kernels import is_available, linear, modules, use_kernels
from foster.kernels.linear import MOST_SIZE, supports_linear
from foster.networks.boosted import BoostedNetwork
from foster.networks.heads import Head
from foster.networks.network import Network
from foster.networks.resnet import cifar_resnet

MOST_ERROR = 1e-6
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not is_available(), reason="needs a GPU and Triton")]
SHAPES = [(13, 10, 64), (9, 37, 130), (1, 1, 1), (66, 8, 16)]
"""Images, classes and features."""


def random_inputs(num_images: int, num_classes: int, num_features: int, device: str = "cpu") -> list[Tensor]:
    chance = torch.Generator().manual_seed(num_images + num_classes)
    shapes = [(num_images, num_features), (num_classes, num_features), (num_classes,)]
    return [torch.randn(shape, generator=chance).to(device).requires_grad_() for shape in shapes]


def results(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Output and the gradients of all inputs that want one."""
    output = function(*inputs)
    chance = torch.Generator().manual_seed(0)
    gradient = torch.randn(output.shape, generator=chance).to(output)
    return [output.detach(), *torch.autograd.grad(output, [value for value in inputs if value.requires_grad], gradient)]


def assert_right(inputs: list[Tensor]) -> None:
    found = results(linear.linear, inputs)
    exact = results(
        functional.linear, [value.detach().double().requires_grad_(value.requires_grad) for value in inputs]
    )
    for result, expected in zip(found, exact, strict=True):
        assert result.dtype is torch.float32
        assert result.shape == expected.shape
        assert (result.double() - expected).norm() <= MOST_ERROR * expected.norm()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("emulation")
def test_output_and_gradients_equal_float64(shape: tuple[int, int, int]) -> None:
    assert_right(random_inputs(*shape))


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 0, 1)])
@pytest.mark.usefixtures("emulation")
def test_each_gradient_may_be_wanted_alone(wanted: tuple[int, ...]) -> None:
    inputs = random_inputs(6, 5, 9)
    assert_right([value.requires_grad_(bool(is_wanted)) for value, is_wanted in zip(inputs, wanted, strict=True)])


def test_supported_are_small_matrices_of_float32() -> None:
    features, weight, bias = random_inputs(4, 3, 5)
    assert supports_linear(features, weight, bias)
    assert supports_linear(features, weight, None)
    assert not supports_linear(features.double(), weight.double(), bias.double())
    assert not supports_linear(features, weight.bfloat16(), bias)
    assert not supports_linear(features, weight, bias.bfloat16())
    assert not supports_linear(features[:0], weight, bias), "nothing to multiply"
    assert not supports_linear(features, weight[:0], bias[:0])
    assert not supports_linear(features[None], weight, bias)
    assert not supports_linear(torch.zeros(MOST_SIZE + 1, 5), weight, bias)
    assert not supports_linear(torch.zeros(1000, 1000), torch.zeros(1000, 1000), None)


class TestInNetworks:
    @pytest.fixture(autouse=True)
    def _emulated(self, emulation: None) -> None:
        """All of these run kernels."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
        """Shapes of the weights that the kernels multiplied with. All features count as those of a bfloat16 step."""
        called: list[tuple[int, ...]] = []
        multiply = linear.linear

        def count(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            called.append(tuple(weight.shape))
            return multiply(features, weight, bias)

        monkeypatch.setattr(modules, "linear", count)
        monkeypatch.setattr(modules, "_computes_in_bfloat16", lambda maps: maps.ndim == 2)
        return called

    def test_a_boosted_network_uses_the_kernels_for_all_its_heads(self, calls: list[tuple[int, ...]]) -> None:
        torch.manual_seed(0)
        plain = BoostedNetwork(Network.create(cifar_resnet(8), 4), num_new=3)
        boosted = use_kernels(copy.deepcopy(plain))
        assert list(boosted.state_dict()) == list(plain.state_dict())
        images = torch.randn(4, 3, 8, 8)
        for network in (plain, boosted):
            out = network(images)
            (out.logits.square().sum() + out.new_branch_logits.square().sum()).backward()
        assert sorted(calls) == [(4, 64), (7, 64), (7, 128)]
        found, expected = dict(boosted.named_parameters()), dict(plain.named_parameters())
        for name in ("old_block", "new_on_old", "new_block", "old_bias", "new_bias", "new_branch_head.weight"):
            torch.testing.assert_close(found[name].grad, expected[name].grad)

    @pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
    def test_compilers_see_the_plain_function(self, calls: list[tuple[int, ...]]) -> None:
        head, features = use_kernels(Head(8, 5)), torch.randn(3, 8)
        expected = functional.linear(features, *head.parameters())
        torch.testing.assert_close(torch.export.export(head, (features,)).module()(features), expected)
        traced = torch.jit.trace(head, (features,), check_trace=False)  # type: ignore[no-untyped-call]
        torch.testing.assert_close(traced(features), expected)
        assert not calls


class TestOnGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize(
        "shape",
        [*SHAPES, (128, 10, 64), (128, 60, 128), (88, 60, 128), (128, 80, 64), (128, 100, 640), (1024, 16, 1024)],
        ids=str,
    )
    @pytest.mark.usefixtures("poisoned_memory")
    def test_output_and_gradients_equal_float64(self, shape: tuple[int, int, int]) -> None:
        inputs = random_inputs(*shape, device="cuda")
        assert_right([value.detach().requires_grad_() for value in inputs])

    def test_results_are_the_same_in_every_run(self) -> None:
        inputs = random_inputs(128, 60, 128, "cuda")
        first, *others = (results(linear.linear, inputs) for _ in range(5))
        assert all(torch.equal(one, other) for found in others for one, other in zip(first, found, strict=True))

    def test_a_recorded_head_equals_the_library(self) -> None:
        torch.manual_seed(0)
        plain = Head(64, 60).cuda()
        head, features = use_kernels(copy.deepcopy(plain)), torch.randn(128, 64, device="cuda")

        def step() -> list[Tensor]:
            with torch.autocast("cuda", torch.bfloat16):
                logits = head(features)
            return [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(head.parameters()))]

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = step()
        graph.replay()
        logits = plain(features)
        expected = [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(plain.parameters()))]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
