"""BiasCorrectedHead: one alpha and one beta a task, kept while the head grows."""

import torch
from torch import Tensor

from foster.networks import build_backbone
from foster.networks.bias import BiasCorrectedHead
from foster.networks.heads import Head
from foster.networks.network import Network


def features() -> Tensor:
    return torch.tensor([[1.0, 2.0], [0.0, -1.0]])


def corrected_head() -> BiasCorrectedHead:
    head = BiasCorrectedHead(2, (2, 1))
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        head.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
        head.newest.alpha.fill_(0.5)
        head.newest.beta.fill_(-3)
    return head


def test_each_task_has_its_own_correction() -> None:
    # Plain logits are (1, 3, 2) and (0, 0, -2); only the last class belongs to the corrected task.
    assert corrected_head()(features()).tolist() == [[1.0, 3.0, -2.0], [0.0, 0.0, -4.0]]


def test_an_uncorrected_head_is_a_plain_head() -> None:
    head = BiasCorrectedHead(2, (2, 3))
    assert torch.equal(head(features()), Head.from_values(head.weight, head.bias)(features()))


def test_a_grown_head_keeps_rows_and_corrections_and_starts_uncorrected_for_new_classes() -> None:
    head = corrected_head()
    grown = head.grown(2)
    assert grown.task_sizes == (2, 1, 2)
    assert torch.equal(grown(features())[:, :3], head(features()))
    assert grown.alpha.tolist() == [1, 1, 0.5, 1, 1]
    assert grown.beta.tolist() == [0, 0, -3, 0, 0]
    with torch.no_grad():
        grown.newest.alpha.fill_(7)
        grown.weight.zero_()
    assert head.alpha.tolist() == [1, 1, 0.5]
    assert head.weight.any()


def test_only_rows_and_biases_are_trained_until_a_correction_is_released() -> None:
    head = corrected_head().grown(2)
    assert {name for name, value in head.named_parameters() if value.requires_grad} == {"weight", "bias"}
    head.requires_grad_(False)
    head.newest.requires_grad_(True)
    head(features()).sum().backward()
    plain = Head.from_values(head.weight, head.bias)(features())
    torch.testing.assert_close(head.newest.alpha.grad, plain[:, 3:].sum().reshape(1))
    assert head.newest.beta.grad is not None
    assert head.newest.beta.grad.tolist() == [4]


def test_a_network_with_a_corrected_head_grows_and_counts_two_numbers_a_task() -> None:
    network = Network([build_backbone("resnet8")], BiasCorrectedHead(64, (3,)))
    grown = network.with_new_classes(2)
    plain = Network.create(build_backbone("resnet8"), 5)
    assert isinstance(grown.head, BiasCorrectedHead)
    assert grown.num_classes == 5
    assert grown.num_parameters() == plain.num_parameters() + 2 * 2


def test_corrected_logits_of_a_bfloat16_step_are_float32() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert corrected_head()(features()).dtype == torch.float32


def test_a_regrouped_head_gives_the_corrected_logits_without_a_correction() -> None:
    head = corrected_head().grown(2)
    with torch.no_grad():
        head.newest.alpha.fill_(0.5)
        head.newest.beta.fill_(-1)
    regrouped = head.regrouped([(1,), (4,)], [1, 0, 1])
    torch.testing.assert_close(regrouped(features()), head(features())[:, [1, 4]])
    assert regrouped.task_sizes == (1, 0, 1)
    assert regrouped.alpha.tolist() == [1, 1]
