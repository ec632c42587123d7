"""A backbone in two: together the parts are the whole, and the first is never trained."""

import pytest
import torch

from foster.errors import SettingsError
from foster.networks import build_backbone
from foster.networks.network import Backbone
from foster.networks.trunk import Tail, Trunk, cut


@pytest.mark.parametrize("name", ["efficientnet_lite0", "resnet18", "resnet8"])
@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_trunk_and_tail_together_are_the_backbone(name: str, num_parts: int) -> None:
    torch.manual_seed(1)
    backbone = build_backbone(name)
    for module in backbone.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    images = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        whole = backbone.eval()(images)
        trunk, tail = cut(backbone, num_parts, name)
        assert isinstance(trunk, Trunk)
        assert isinstance(tail, Tail)
        found = tail.eval()(trunk(images))
    torch.testing.assert_close(found, whole, rtol=1e-3, atol=1e-4)
    assert not any(parameter.requires_grad for parameter in trunk.parameters())
    assert not trunk.train().training


@pytest.mark.parametrize("num_parts", [0, 4, -1])
def test_a_trunk_leaves_something_to_train(num_parts: int) -> None:
    with pytest.raises(SettingsError, match=r"backbone 'resnet8' has 4 parts, of which 1 to 3 can be frozen"):
        cut(build_backbone("resnet8"), num_parts, "resnet8")


def test_a_backbone_without_parts_cannot_be_cut() -> None:
    with pytest.raises(SettingsError, match="'mine' cannot be cut in two; use trunk=none"):
        cut(Backbone(), 1, "mine")


def test_batch_norm_is_folded_into_the_convolutions_before_it() -> None:
    trunk, tail = cut(build_backbone("resnet8"), 1, "resnet8")
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in trunk.modules())
    assert any(isinstance(module, torch.nn.BatchNorm2d) for module in tail.modules())
