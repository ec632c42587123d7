"""Folded BatchNorm: the same function as before, and a network that is untouched afterwards."""

import pytest
import torch
from torch import nn

from foster.kernels.folding import folded_frozen_parts, is_folded
from foster.networks import build_backbone
from foster.networks.freezing import freeze
from foster.networks.network import Backbone


def with_statistics(name: str) -> Backbone:
    """A backbone whose BatchNorms have seen something."""
    torch.manual_seed(0)
    backbone = build_backbone(name)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return backbone


@pytest.mark.parametrize("name", ["resnet18", "resnet18_fine_stem", "cosine_resnet18", "resnet50"])
def test_a_folded_network_computes_what_it_computed_before(name: str) -> None:
    backbone, images = freeze(with_statistics(name)), torch.randn(2, 3, 40, 40)
    names = list(backbone.state_dict())
    with torch.no_grad():
        expected = backbone(images)
        with folded_frozen_parts([backbone], True, torch.float32):
            assert sum(map(is_folded, backbone.modules())) >= 4
            found = backbone(images)
            assert list(backbone.state_dict()) == names
        assert not any(map(is_folded, backbone.modules()))
        torch.testing.assert_close(backbone(images), expected, rtol=0, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_what_is_trained_is_never_folded() -> None:
    backbone = with_statistics("resnet18")
    with folded_frozen_parts([backbone], True, torch.float32):
        assert not any(map(is_folded, backbone.modules()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_folding_in_bfloat16_is_as_exact_as_bfloat16_is(name: str) -> None:
    backbone = freeze(with_statistics(name)).cuda().to(memory_format=torch.channels_last)
    images = torch.randn(8, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last)
    with torch.no_grad():
        exact = backbone.double()(images.double())
        backbone.float()
        with torch.autocast("cuda", torch.bfloat16):
            plain = backbone(images)
            with folded_frozen_parts([backbone], True, torch.bfloat16):
                folded = backbone(images)
    error, usual = (folded - exact).abs().mean(), (plain - exact).abs().mean()
    assert error <= 1.5 * usual


def test_narrow_networks_are_left_as_they_are() -> None:
    backbone = with_statistics("resnet8")
    with folded_frozen_parts([freeze(backbone)], True, torch.float32):
        assert not any(map(is_folded, backbone.modules()))
