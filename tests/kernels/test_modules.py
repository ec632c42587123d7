"""Where a network uses the kernels, and where it stays what it was."""

import copy
from collections.abc import Callable

import pytest
import torch
from block_reference import (
    Shape,
    make_block,
    random_maps,
)
from torch import nn

from foster.kernels import drop_kernels, is_fused, modules, supports, use_kernels
from foster.kernels.modules import KernelBlock, KernelLayer
from foster.networks import build_backbone
from foster.networks.resnet import Block, cifar_resnet


def _freeze_statistics(block: Block) -> None:
    block.norm1.eval()


def _eval_with_gradients(block: Block) -> None:
    block.eval()


@pytest.mark.parametrize("change", [_freeze_statistics, _eval_with_gradients])
@pytest.mark.usefixtures("emulation")
def test_a_block_in_a_mode_without_kernels_runs_as_written(
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
    assert not any(is_fused(part) for part in drop_kernels(fused).modules())


def test_wide_layers_on_large_maps_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ResNet-18 for small images, only the stem uses kernels; of a narrow network all stages do, the last of which
    has as many channels on small maps."""
    monkeypatch.setattr(modules, "is_available", lambda: True)
    network = use_kernels(nn.Sequential(build_backbone("resnet18_small_images")))
    assert [name for name, part in network.named_modules() if type(part) in modules.PLAIN] == ["0.stem"]
    narrow = use_kernels(cifar_resnet(8))
    assert all(type(block) is KernelBlock for stage in narrow.get_submodule("body") for block in stage)


def test_supported_are_narrow_windows_of_three() -> None:
    assert supports((128, 16, 32, 32), (16, 16, 3, 3))
    assert supports((1, 3, 32, 32), (16, 3, 3, 3))
    assert supports((128, 32, 16, 16), (64, 32, 3, 3), stride=2)
    assert not supports((128, 16, 32, 32), (16, 16, 1, 1))
    assert not supports((128, 16, 32, 32), (16, 16, 3, 3), stride=3)
    assert not supports((128, 128, 8, 8), (128, 128, 3, 3))
    assert not supports((2**17, 16, 32, 32), (16, 16, 3, 3)), "its elements cannot be counted in 32 bits"


def test_convolutions_that_no_kernel_computes_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_available", lambda: True)
    convolutions = (
        nn.Conv2d(16, 16, 3, padding=1, bias=True),
        nn.Conv2d(16, 16, 3, padding=0, bias=False),
        nn.Conv2d(16, 16, 1, bias=False),
        nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(16, 16, 3, padding=1, stride=(1, 2), bias=False),
        nn.Conv2d(16, 128, 3, padding=1, bias=False),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect", bias=False),
    )
    for convolution in convolutions:
        layer = nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU())
        assert type(use_kernels(layer)) is nn.Sequential
    usual = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    assert type(use_kernels(usual)) is KernelLayer
