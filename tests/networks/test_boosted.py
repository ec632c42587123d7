"""BoostedNetwork: FOSTER's blocks, what each of them sees, and the networks it turns into."""

import math

import pytest
import torch
from torch import Tensor, nn

from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.modules import is_frozen
from foster.networks.network import Network

BLOCKS = ("old_block", "new_on_old", "new_block", "old_bias", "new_bias")


def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def addresses(module: nn.Module) -> set[int]:
    return {value.data_ptr() for value in module.state_dict().values()}


def trained_apart(boosted: BoostedNetwork) -> BoostedNetwork:
    """As after training: everything that is trained differs from its start."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in boosted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return boosted.eval()


@pytest.fixture
def old() -> Network:
    torch.manual_seed(0)
    network = Network.create(build_backbone("resnet8"), 3)
    network(images())  # BatchNorm statistics that differ from fresh ones
    with torch.no_grad():
        network.head.bias.uniform_(-1, 1)
    return network.eval()


@pytest.fixture
def boosted(old: Network) -> BoostedNetwork:
    return trained_apart(BoostedNetwork(old, 2))


def test_one_forward_pass_gives_boosted_old_and_new_branch_logits(old: Network, boosted: BoostedNetwork) -> None:
    assert (boosted.num_classes, boosted.num_known, boosted.feature_size) == (5, 3, 128)
    output = boosted(images())
    old_features, new_features = old.features(images()), boosted.new_branch(images())
    assert torch.equal(output.old_logits, old(images()).logits)
    assert torch.equal(output.features, torch.cat([old_features, new_features], 1))
    known = old_features @ boosted.old_block.T + new_features @ boosted.new_block[:3].T + boosted.old_bias
    new = old_features @ boosted.new_on_old.T + new_features @ boosted.new_block[3:].T + boosted.new_bias
    torch.testing.assert_close(output.logits, torch.cat([known, new], 1), rtol=1e-4, atol=1e-5)
    enhanced = new_features @ boosted.new_branch_head.weight.T + boosted.new_branch_head.bias
    torch.testing.assert_close(output.new_branch_logits, enhanced, rtol=1e-4, atol=1e-5)


def test_expansion_copies_the_old_parts_and_initialises_the_rest_with_the_whole_fan_in(old: Network) -> None:
    boosted = BoostedNetwork(old, 200)
    assert torch.equal(boosted.old_block, old.head.weight)
    assert torch.equal(boosted.old_bias, old.head.bias)
    assert (boosted.new_bias == 0).all()
    bound = math.sqrt(3 / 128)
    for block in (boosted.new_on_old, boosted.new_block):
        assert 0.99 * bound < block.abs().max().item() <= bound
    assert 0.99 * math.sqrt(3 / 64) < boosted.new_branch_head.weight.abs().max().item() <= math.sqrt(3 / 64)
    grown = old.with_new_branch(1)
    for network in (old, grown):
        nn.init.ones_(next(network.branches[-1].parameters()))  # the newest branch differs from the others
        newest = network.branches[-1].state_dict()
        branch = BoostedNetwork(network, 2).new_branch
        assert all(torch.equal(value, newest[key]) for key, value in branch.state_dict().items())


def test_expansion_shares_nothing_with_the_old_network_and_leaves_it_trainable(old: Network) -> None:
    boosted = BoostedNetwork(old, 2)
    assert not addresses(boosted) & addresses(old)
    assert not addresses(boosted.old) & addresses(boosted.new_branch)
    assert all(parameter.requires_grad for parameter in old.parameters())
    assert is_frozen(boosted.old)
    assert not boosted.old.training


@pytest.mark.parametrize(
    ("new_on_old", "train_old_block", "trained"),
    [
        ("finetune", True, {"old_block", "new_on_old", "new_block", "old_bias", "new_bias"}),
        ("zero", True, {"old_block", "new_block", "old_bias"}),
        ("zero_with_bias", True, {"old_block", "new_block", "old_bias", "new_bias"}),
        ("zero", False, {"new_block"}),
        ("finetune", False, {"new_on_old", "new_block", "new_bias"}),
    ],
)
def test_only_the_chosen_blocks_receive_gradients(
    old: Network, new_on_old: str, train_old_block: bool, trained: set[str]
) -> None:
    boosted = BoostedNetwork(old, 2, new_on_old, train_old_block)
    if new_on_old != "finetune":
        assert (boosted.new_on_old == 0).all()
        assert (boosted.new_bias == 0).all()
    output, branch = boosted(images()), [*boosted.new_branch.parameters()]
    for logits in (output.logits, output.new_branch_logits):  # each loss alone trains the new branch
        assert torch.autograd.grad(logits.square().sum(), branch, retain_graph=True)
    (output.logits.square().sum() + output.new_branch_logits.square().sum()).backward()
    assert {name for name in BLOCKS if getattr(boosted, name).grad is not None} == trained
    assert all(parameter.grad is not None for parameter in boosted.new_branch.parameters())
    assert all(parameter.grad is not None for parameter in boosted.new_branch_head.parameters())
    assert all(parameter.grad is None for parameter in boosted.old.parameters())


def test_the_plain_network_of_all_branches_is_the_same_function(boosted: BoostedNetwork) -> None:
    state = torch.get_rng_state()
    plain = boosted.as_network().eval()
    assert torch.equal(torch.get_rng_state(), state)
    expected = boosted(images())
    assert torch.equal(plain(images()).logits, expected.logits)
    assert torch.equal(plain.features(images()), expected.features)
    parts = [network.beyond(boosted.old).eval()(images()).logits for network in (boosted, plain)]
    torch.testing.assert_close(*parts, msg="the new branch with its columns")
    assert addresses(plain) & addresses(boosted) == addresses(boosted.old.branches), "frozen in both"
    backbone = sum(parameter.numel() for parameter in boosted.new_branch.parameters())
    assert plain.num_parameters() == 2 * backbone + 5 * (128 + 1), "without the old head and the new branch's"


def test_alignment_works_on_whole_rows_like_that_of_the_plain_network(boosted: BoostedNetwork) -> None:
    plain = boosted.as_network()
    before = {name: getattr(boosted, name).detach().clone() for name in BLOCKS}
    boosted.align(3)
    plain.align(3)
    assert torch.equal(boosted.weight, plain.head.weight)
    assert torch.equal(boosted.bias, plain.head.bias)
    assert torch.equal(boosted.old_block, before["old_block"])
    assert torch.equal(boosted.new_block[:3], before["new_block"][:3])
    assert not torch.equal(boosted.new_on_old, before["new_on_old"])


def test_a_boosted_network_trains_in_bfloat16(boosted: BoostedNetwork) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        output = boosted(images())
        loss = output.logits.float().logsumexp(1).sum() + output.new_branch_logits.float().logsumexp(1).sum()
    assert output.logits.dtype == torch.float32, "the head does not round"
    loss.backward()
    trained = [parameter for parameter in boosted.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None and torch.isfinite(parameter.grad).all() for parameter in trained)


def test_probabilities_of_both_branches_can_be_summed_in_the_place_of_logits(old: Network) -> None:
    network = BoostedNetwork(old, 2, sums="probabilities").eval()
    out, old_size = network(images()), old.feature_size
    first = out.features[:, :old_size] @ network.weight[:, :old_size].T + network.bias
    second = out.features[:, old_size:] @ network.weight[:, old_size:].T
    expected = (first.softmax(1) + second.softmax(1)) / 2
    torch.testing.assert_close(out.logits.exp(), expected)
    torch.testing.assert_close(out.logits.exp().sum(1), torch.ones(4))
