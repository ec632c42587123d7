"""Cosine heads need features that may be negative: the variant of a backbone without its last ReLU."""

import pytest
import torch
from small_course import SHORT, new_method

from foster.data.memory import ExemplarMemory
from foster.methods.coil import Coil
from foster.networks import BACKBONES
from foster.settings.fit import FitSettings
from foster.settings.methods import CoilSettings

LATER = FitSettings(epochs=4, learning_rate=0.05)


def coil(entropy: float = 0.464, memory: ExemplarMemory | None = None, backbone: str = "resnet8") -> Coil:
    settings = CoilSettings(first=SHORT, later=LATER, sinkhorn=entropy, transport_weight=0.5)
    method = new_method(Coil, settings, memory, backbone)
    assert isinstance(method, Coil)
    return method


@pytest.mark.parametrize("name", [name for name in BACKBONES if name.startswith("resnet")])
def test_every_resnet_becomes_its_variant_for_cosine_heads(name: str) -> None:
    assert Coil.backbone_name(name) == f"cosine_{name}"
    assert Coil.backbone_name(f"cosine_{name}") == f"cosine_{name}"


@pytest.mark.parametrize("name", ["efficientnet_lite0", "timm:resnet18"])
def test_any_other_backbone_stays_as_it_is(name: str) -> None:
    assert Coil.backbone_name(name) == name


@pytest.mark.parametrize(("name", "num_parameters"), [("resnet32", 466_256), ("resnet8", 77_392)])
def test_the_users_backbone_loses_its_last_relu(name: str, num_parameters: int) -> None:
    network = coil(backbone=name).new_network([4, 2])
    backbone = network.branches[0]
    assert sum(parameter.numel() for parameter in backbone.parameters()) == num_parameters
    assert (network.eval()(torch.randn(8, 3, 8, 8)).features < 0).any()
