"""Residual blocks and layers as single functions against a reference in float64, with emulated kernels; and where they
are used. `test_blocks_gpu.py` runs the compiled kernels."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

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
from torch import nn

from foster.kernels import compilation as starting
from foster.kernels import compiled_side_by_side, drop_kernels, is_fused, modules, tiles, use_kernels
from foster.kernels.modules import KernelBlock, KernelLayer
from foster.kernels.tiles import ConvolutionTile
from foster.networks.network import Network
from foster.networks.resnet18 import full_size_stem, resnet18
from foster.networks.resnet_cifar import Block, cifar_resnet, small_stem
from foster.training.accelerate import compiled_backbones

BLOCKS = [
    ("same", Shape(2, 16, 6, 6)),
    ("same", Shape(1, 32, 5, 7)),
    ("same", Shape(3, 64, 4, 4)),
    ("no_relu", Shape(2, 16, 5, 5)),
    ("option_a", Shape(3, 16, 8, 8)),
    ("option_a", Shape(2, 32, 7, 5)),
    ("projection", Shape(2, 16, 6, 6)),
]


@pytest.mark.parametrize(("kind", "shape"), BLOCKS, ids=str)
@pytest.mark.usefixtures("emulation")
def test_a_block_trains_as_the_exact_one(kind: str, shape: Shape) -> None:
    assert_trains_right(make_block(kind, shape.channels), random_maps(shape))


@pytest.mark.parametrize("tile", [ConvolutionTile(64, 16, 2, 1, 3), ConvolutionTile(16, 32, 1, 2), (32, 32, 2)])
@pytest.mark.usefixtures("emulation")
def test_the_tiles_do_not_change_a_block(tile: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.CONVOLUTION_TILES, (32, 32), ConvolutionTile(*tile))
    monkeypatch.setattr("foster.kernels.norms.NORM_ELEMENTS", 32 * tile[0])
    assert_trains_right(make_block("same", 32), random_maps(Shape(3, 32, 5, 6)))


@pytest.mark.usefixtures("emulation")
def test_more_blocks_than_one_program_adds_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.CONVOLUTION_TILES, (16, 16), ConvolutionTile(16, 16, 1))
    monkeypatch.setattr("foster.kernels.norms.FINISHING", {"size": 4, "warps": 1, "num_warps": 1})
    assert_trains_right(make_block("same"), random_maps(Shape(3, 16, 5, 5)))


@pytest.mark.usefixtures("emulation")
def test_a_stem_trains_as_the_exact_one() -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 7, 6, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    assert_trains_right(random_weights(small_stem(16)), images.contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize(("kind", "shape"), [*BLOCKS[:2], *BLOCKS[3:]], ids=str)
@pytest.mark.usefixtures("emulation")
def test_a_frozen_block_equals_the_exact_one(kind: str, shape: Shape) -> None:
    block, maps = make_block(kind, shape.channels).eval(), random_maps(shape)
    with torch.no_grad():
        expected = exact(copy.deepcopy(block).double(), maps.double())
        before = copy.deepcopy(block.state_dict())
        with torch.autocast("cpu", torch.bfloat16):
            found = use_kernels(block)(maps)
    assert error(found, expected) < MOST_ERROR["output"]
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())


@pytest.mark.usefixtures("emulation")
def test_training_mode_without_gradients_updates_the_statistics() -> None:
    plain = make_block("same")
    fused = use_kernels(copy.deepcopy(plain))
    maps = random_maps(Shape(2, 16, 5, 5))
    with torch.no_grad():
        exact(plain.double(), maps.double())
        assert not fused(maps).requires_grad
    for part in ("norm1", "norm2"):
        found, expected = fused.get_submodule(part), plain.get_submodule(part)
        assert error(found.running_mean, expected.running_mean) < MOST_ERROR["statistics"]  # type: ignore[arg-type]
        assert error(found.running_var, expected.running_var) < MOST_ERROR["statistics"]  # type: ignore[arg-type]


def _freeze_statistics(block: Block) -> None:
    block.norm1.eval()


def _no_momentum(block: Block) -> None:
    block.norm1.momentum = None


def _eval_with_gradients(block: Block) -> None:
    block.eval()


def _plain_statistics(block: Block) -> None:
    block.norm2 = nn.BatchNorm2d(16, track_running_stats=False)


def _plain_parameters(block: Block) -> None:
    block.norm2 = nn.BatchNorm2d(16, affine=False)


def _hook(block: Block) -> None:
    block.norm2.register_forward_hook(lambda module, given, found: None)


def _computed_weight(block: Block) -> None:
    nn.utils.spectral_norm(block.conv1)


@pytest.mark.parametrize(
    "change",
    [
        _freeze_statistics,
        _no_momentum,
        _eval_with_gradients,
        _plain_statistics,
        _plain_parameters,
        _hook,
        _computed_weight,
    ],
)
@pytest.mark.usefixtures("emulation")
def test_a_block_that_the_kernels_do_not_know_runs_as_written(
    change: Callable[[Block], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = make_block("same")
    assert isinstance(block, Block)
    change(block)
    use_kernels(block)
    for name in ("trained_block", "frozen_block"):
        monkeypatch.setattr(f"foster.kernels.blocks.{name}", None)
    with torch.autocast("cpu", torch.bfloat16):
        assert block(random_maps(Shape(2, 16, 4, 4))).requires_grad


def test_in_float32_a_fused_network_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_available", lambda: True)
    plain = cifar_resnet(8)
    fused = copy.deepcopy(use_kernels(copy.deepcopy(plain)))
    kinds = [type(part) for part in fused.modules() if is_fused(part)]
    assert kinds == [KernelLayer, KernelBlock, KernelBlock, KernelBlock]
    assert list(fused.state_dict()) == list(plain.state_dict())
    images = torch.randn(4, 3, 8, 8)
    for is_training in (True, False):
        torch.testing.assert_close(fused.train(is_training)(images), plain.train(is_training)(images))


@pytest.mark.usefixtures("emulation")
def test_a_layer_whose_parts_are_watched_calls_them() -> None:
    layer = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    called: list[nn.Module] = []
    layer[2].register_forward_hook(lambda module, given, found: called.append(module))
    with torch.autocast("cpu", torch.bfloat16):
        use_kernels(layer)(random_maps(Shape(2, 16, 4, 4)))
    assert called == [layer[2]]


def test_what_used_the_kernels_can_be_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_available", lambda: True)
    network = Network.create(cifar_resnet(8), 3)
    before = {name: type(part) for name, part in network.named_modules()}
    assert {name: type(part) for name, part in use_kernels(network).named_modules()} != before
    grown = network.with_new_classes(2)
    for fused in (network, grown):
        assert {name: type(part) for name, part in drop_kernels(fused).named_modules()} == before


def test_wide_layers_on_large_maps_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ResNet-18 for small images, only the stem uses kernels; of a narrow network all stages do, the last of which
    has as many channels on small maps."""
    monkeypatch.setattr(modules, "is_available", lambda: True)
    network = use_kernels(nn.Sequential(resnet18(full_size_stem)))
    assert [name for name, part in network.named_modules() if type(part) in modules.PLAIN] == ["0.stem", "0.stem.0"]
    narrow = use_kernels(cifar_resnet(8))
    assert all(type(block) is KernelBlock for stage in narrow.get_submodule("body") for block in stage)


def test_fused_parts_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_available", lambda: True)
    monkeypatch.setattr("foster.training.accelerate._compiled", lambda function: function)
    network = Network.create(cifar_resnet(8), 3)
    with compiled_backbones([network], is_wanted=True):
        assert any("forward" in vars(part) for part in network.modules())
    use_kernels(network)
    with compiled_backbones([network], is_wanted=True):
        assert not any("forward" in vars(part) or "stages" in vars(part) for part in network.modules())


@pytest.mark.usefixtures("emulation")
def test_kernels_that_are_compiled_side_by_side_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(starting, "_compile", compiled.extend)
    blocks = [use_kernels(make_block("same")) for _ in range(2)]
    maps = random_maps(Shape(2, 16, 4, 4))
    before = copy.deepcopy(blocks[0].state_dict())
    with compiled_side_by_side():
        blocks[1](blocks[0](maps)).sum().backward()
        assert not compiled
    assert all(torch.equal(value, before[name]) for name, value in blocks[0].state_dict().items())
    kernels = Counter(start.kernel.function.__name__ for start in compiled)
    # Once each, however many blocks there are. Convolutions: with statistics, of a gradient gated, and plus the
    # shortcut's; normalisation with and without the shortcut; a gradient passed on through a ReLU and without.
    assert kernels == {
        "convolve": 3,
        "finish_statistics": 1,
        "normalise": 2,
        "sum_gradient": 1,
        "finish_gradient": 1,
        "pass_gradient": 2,
        "weight_gradients": 1,
        "sum_partial_sums": 1,
    }
    assert blocks[0](maps).isfinite().all()


@pytest.mark.usefixtures("emulation")
def test_what_is_not_a_number_stays_so() -> None:
    """Else a training that has gone wrong would have a finite loss."""
    block = use_kernels(make_block("same"))
    maps = random_maps(Shape(2, 16, 4, 4))
    maps[0, 0, 0, 0] = torch.nan
    with torch.no_grad():
        assert block(maps).isnan().any()
        assert block.eval()(maps).isnan().any()
