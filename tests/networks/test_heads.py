"""Heads: fresh values, growth that keeps what was learned, weight alignment and cosine similarity."""

import math

import pytest
import torch
from torch import Tensor, nn

from foster.networks.heads import CosineHead, Head


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_fresh_head_is_uniform_within_its_bound_with_zero_bias() -> None:
    torch.manual_seed(0)
    head = Head(48, 500)
    assert head.weight.shape == (500, 48)
    assert head.weight.abs().max().item() == pytest.approx(math.sqrt(3 / 48), rel=1e-3)
    assert head.weight.abs().max().item() <= math.sqrt(3 / 48)
    # A uniform value within ±0.25 has the deviation 0.25 / sqrt(3).
    assert head.weight.std().item() == pytest.approx(0.25 / math.sqrt(3), rel=0.02)
    assert (head.bias == 0).all()


@pytest.mark.parametrize("in_features", [8, 12])
def test_growth_keeps_the_top_left_block_and_the_biases_bit_for_bit(in_features: int) -> None:
    torch.manual_seed(0)
    head = Head.from_values(10 + random(3, 8), random(3, seed=1))
    before = head.weight.clone()
    grown = head.grown(2, in_features)
    assert grown.weight.shape == (5, in_features)
    assert torch.equal(grown.weight[:3, :8], before)
    assert torch.equal(grown.bias[:3], head.bias)
    assert (grown.bias[3:] == 0).all()
    for new in (grown.weight[:3, 8:], grown.weight[3:]):
        assert (new.abs() <= math.sqrt(3 / in_features)).all()
        assert len(new.unique()) == new.numel()
    with torch.no_grad():
        grown.weight.zero_()
    assert torch.equal(head.weight, before)


def test_alignment_gives_new_rows_the_mean_norm_of_known_rows() -> None:
    # Norms 5 and 1 (mean 3) are known; 2 and 10 (mean 6) are new: the factor is one half.
    weight = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [6.0, 8.0]])
    head = Head.from_values(weight, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    head.align(num_known=2)
    assert head.weight.tolist() == [[3, 4], [1, 0], [0, 1], [3, 4]]
    assert head.bias.tolist() == [1, 2, 3, 4]
    assert head.weight.requires_grad
    head.align(num_known=2)
    assert head.weight.tolist() == [[3, 4], [1, 0], [0, 1], [3, 4]]


def test_proxies_of_different_classes_do_not_mix() -> None:
    torch.manual_seed(0)
    head = CosineHead(6, 3, num_proxies=4)
    nn.init.constant_(head.scale, 3)
    features = random(5, 6)
    expected = torch.empty(5, 3)
    for image in range(5):
        for label in range(3):
            cosines = torch.stack([torch.cosine_similarity(features[image], p, dim=0) for p in head.proxies[label]])
            expected[image, label] = 3 * (cosines.softmax(0) * cosines).sum().detach()
    torch.testing.assert_close(head(features), expected)


def test_a_grown_cosine_head_freezes_old_proxies_and_trains_new_ones() -> None:
    torch.manual_seed(0)
    head = CosineHead(4, 3, num_proxies=2)
    with torch.no_grad():
        head.scale.fill_(7)
    grown = head.grown(2).grown(1)
    assert grown.num_classes == 6
    assert torch.equal(grown.old_proxies[:3], head.new_proxies)
    assert grown.old_proxies.shape == (5, 2, 4)
    assert grown.new_proxies.shape == (1, 2, 4)
    assert grown.scale.item() == 7
    torch.testing.assert_close(grown(random(5, 4))[:, :3], head(random(5, 4)))
    grown(random(5, 4)).sum().backward()
    assert grown.old_proxies.grad is None
    assert grown.new_proxies.grad is not None
    assert grown.scale.grad is not None


def test_a_regrouped_head_keeps_single_classes_and_gives_several_their_mean() -> None:
    torch.manual_seed(0)
    head = Head(4, 4)
    with torch.no_grad():
        head.bias.uniform_()
    logits, regrouped = head(random(5, 4)), head.regrouped([(0, 2), (3,)])
    assert torch.equal(regrouped.weight[1], head.weight[3])
    torch.testing.assert_close(regrouped(random(5, 4)), torch.stack([logits[:, [0, 2]].mean(1), logits[:, 3]], dim=1))
