import torch

from foster.networks.freezing import training_mode
from foster.networks.heads import Head
from foster.networks.network import Network
from foster.networks.residual_head import ResidualHead


def features(num: int, seed: int = 0) -> torch.Tensor:
    """Features of very different scales and places."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(num, 6, generator=chance) * torch.tensor([0.1, 1, 3, 10, 0.5, 2]) + torch.arange(6.0)


def trained(head: ResidualHead) -> ResidualHead:
    """After some steps on features that drifted away from the old ones."""
    training_mode(head)
    optimizer = torch.optim.SGD([each for each in head.parameters() if each.requires_grad], lr=0.001)
    for step in range(20):
        optimizer.zero_grad()
        head(3 * features(32, step) - 1).square().mean().backward()
        optimizer.step()
    return head


def test_it_starts_as_the_head_that_it_was() -> None:
    old = features(500)
    head = Head(6, 4)
    torch.testing.assert_close(ResidualHead(head, old).eval()(old), head(old), rtol=1e-4, atol=1e-4)


def test_after_training_it_folds_into_one_linear_head_that_says_exactly_the_same() -> None:
    residual = trained(ResidualHead(Head(6, 4), features(500)))
    folded = residual.folded()
    assert type(folded) is Head
    some = features(100, 77)
    torch.testing.assert_close(folded(some), residual.eval()(some), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(folded.weight, residual.weight), "the norms are in it"


def test_only_the_new_norm_follows_the_features() -> None:
    before = ResidualHead(Head(6, 4), features(500))
    start = {name: value.clone() for name, value in before.state_dict().items()}
    after = trained(before).state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, start[name])}
    assert not any(name.startswith("old_norm") for name in changed)
    assert {"weight", "bias", "new_norm.weight", "new_norm.bias", "new_norm.running_mean"} <= changed


def test_a_folded_network_is_as_large_as_it_was() -> None:
    def parameters(head: Head) -> int:
        return Network([], head).num_parameters()

    head = Head(6, 4)
    assert parameters(ResidualHead(head, features(9)).folded()) == parameters(head)
