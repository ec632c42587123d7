"""Network: branches and a head, and the ways it grows."""

import pytest
import torch
from torch import Tensor, nn

from foster.networks import build_backbone
from foster.networks.modules import is_frozen
from foster.networks.network import Network


def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    network = Network.create(build_backbone("resnet8"), 3)
    network(images())  # BatchNorm statistics that differ from fresh ones
    return network.eval()


def shares_memory(first: nn.Module, second: nn.Module) -> bool:
    def addresses(module: nn.Module) -> set[int]:
        return {value.data_ptr() for value in module.state_dict().values() if value.numel()}

    return bool(addresses(first) & addresses(second))


def test_a_network_is_its_backbone_and_its_head(network: Network) -> None:
    output = network(images())
    assert output.logits.shape == (4, 3)
    assert output.features.shape == (4, 64)
    assert torch.equal(output.features, network.features(images()))
    torch.testing.assert_close(output.logits, output.features @ network.head.weight.T + network.head.bias)
    assert (network.feature_size, network.num_classes) == (64, 3)
    assert network.num_parameters() == 464 + 4672 + 13952 + 55552 + 3 * 64 + 3


def test_new_classes_leave_features_and_known_logits_as_they_were(network: Network) -> None:
    grown = network.with_new_classes(2).eval()
    assert grown.num_classes == 5
    assert network.num_classes == 3
    assert torch.equal(grown.features(images()), network.features(images()))
    torch.testing.assert_close(grown(images()).logits[:, :3], network(images()).logits)
    assert torch.equal(grown.head.weight[:3], network.head.weight)
    assert not shares_memory(grown, network)


def test_a_new_branch_starts_as_the_newest_and_the_old_ones_are_frozen(network: Network) -> None:
    grown = network.with_new_branch(2)
    with torch.no_grad():
        for parameter in grown.branches[1].parameters():
            parameter.add_(0.01)
    twice = grown.with_new_branch(4)
    assert [is_frozen(branch) for branch in twice.branches] == [True, True, False]
    assert (twice.feature_size, twice.num_classes) == (192, 9)
    newest, copied = twice.branches[1].state_dict(), twice.branches[2].state_dict()
    assert all(torch.equal(newest[key], copied[key]) for key in newest)
    features = twice.eval().features(images())
    assert torch.equal(features[:, :64], network.features(images()))
    assert torch.equal(features[:, 64:128], features[:, 128:])
    assert not torch.equal(features[:, :64], features[:, 64:128])
    later = features[:, 64:] @ twice.head.weight[:, 64:].T + twice.head.bias
    torch.testing.assert_close(twice.beyond(network)(images()).logits, later)
    assert twice.branches[0] is grown.branches[0]  # frozen in both, so nothing changes it
    for after, before in ((twice.branches[1], grown.branches[1]), (twice.head, grown.head)):
        assert not shares_memory(after, before)
    assert not is_frozen(grown.branches[1])


def test_a_regrouped_network_has_the_same_features_and_shares_nothing(network: Network) -> None:
    regrouped = network.eval().regrouped([(0,), (2,)]).eval()
    before, after = network(images()), regrouped(images())
    assert torch.equal(after.features, before.features)
    torch.testing.assert_close(after.logits, before.logits[:, [0, 2]])
    assert not {id(part) for part in regrouped.parameters()} & {id(part) for part in network.parameters()}
