"""The engine: devices by name, normalised images, and inference that leaves no trace."""

import pytest
import torch
from torch import nn

from foster.errors import DeviceError
from foster.networks import build_backbone
from foster.networks.freezing import freeze
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.training import engine
from foster.training.engine import Engine, find_device

CPU = torch.device("cpu")
ENGINE = Engine(CPU, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.1))


def some_images(count: int = 7) -> torch.Tensor:
    return torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def small_network() -> Network:
    with initialisation(Address(0, "network")):
        return Network.create(build_backbone("resnet8"), 3)


def test_devices_are_found_by_name() -> None:
    assert find_device("cpu") == CPU
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(DeviceError, match="cuda:99"):
        find_device("cuda:99")
    with pytest.raises(DeviceError, match=r"auto, cpu, cuda or cuda:N.*'gpu'"):
        find_device("gpu")


def test_inference_leaves_the_network_as_it_was() -> None:
    network = small_network().train()
    freeze(network.branches)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    out = ENGINE.infer(network, some_images())
    assert not out.logits.requires_grad
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert network.training
    assert network.head.training
    assert not any(module.training for module in network.branches.modules())


def test_inference_is_the_network_in_eval_mode() -> None:
    network = small_network().train()
    out = ENGINE.infer(network, some_images())
    network.eval()
    with torch.no_grad():
        expected = network(ENGINE.prepare(some_images()))
    torch.testing.assert_close(out.logits, expected.logits)
    torch.testing.assert_close(out.features, expected.features)


@pytest.mark.parametrize("num_images", [0, 1, 7])
def test_many_images_are_taken_some_at_a_time(num_images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network()
    whole = ENGINE.infer(network, some_images(num_images))
    sizes: list[int] = []
    network.head.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    monkeypatch.setattr(engine, "INFERENCE_PIXELS", {"cpu": 3 * 64})
    parts = ENGINE.infer(network, some_images(num_images))
    assert sizes == {0: [0], 1: [1], 7: [3, 3, 1]}[num_images]
    assert parts.features.shape == (num_images, 64)
    torch.testing.assert_close(parts.logits, whole.logits)


def test_bfloat16_is_for_training_alone() -> None:
    rough = Engine(CPU, ENGINE.mean, ENGINE.std, torch.bfloat16)
    network = small_network()
    with rough.autocast:
        assert nn.functional.linear(torch.ones(1, 2), torch.ones(1, 2)).dtype == torch.bfloat16
    assert rough.prepare(some_images()).dtype == torch.bfloat16
    assert torch.equal(rough.infer(network, some_images()).logits, ENGINE.infer(network, some_images()).logits)
