"""The losses of PODNet, COIL and DER, against numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foster.losses import (
    auxiliary_cross_entropy,
    cosines,
    local_similarity,
    pod_flat,
    pod_spatial,
    prospective_transport,
    proxy_nca,
    retrospective_transport,
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_local_similarity_compares_the_true_class_with_the_sum_of_its_rivals() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.0]])
    # -log(e^1 / (e^2 + e^0)) = log(e^2 + 1) - 1
    assert local_similarity(logits, torch.tensor([0]), 0.0).item() == pytest.approx(math.log(math.e**2 + 1) - 1)
    # -log(e^2 / (e^1 + e^0)) = log(e + 1) - 2 is below 0, where the hinge ends
    assert local_similarity(logits, torch.tensor([1]), 0.0).item() == 0.0
    both = local_similarity(logits.repeat(2, 1), torch.tensor([0, 1]), 0.0)
    assert both.item() == pytest.approx((math.log(math.e**2 + 1) - 1) / 2)


def test_the_margin_counts_against_the_true_class_alone() -> None:
    logits, labels = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([1])
    # Taken from all similarities the margin would cancel out; from the true one it adds to the loss.
    assert local_similarity(logits, labels, 1.0).item() == pytest.approx(math.log(math.e + 1) - 2 + 1)
    without, with_margin = (local_similarity(logits, torch.tensor([0]), margin) for margin in (0.0, 0.25))
    assert (with_margin - without).item() == pytest.approx(0.25)


def test_the_toolkits_loss_is_cross_entropy_where_the_true_class_wins_and_more_where_it_does_not() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    for label in range(3):
        others = [x for k, x in enumerate((0.0, -1.0, -2.0)) if k != label]
        expected = label + math.log(1 + sum(map(math.exp, others)))
        assert proxy_nca(logits, torch.tensor([label])).item() == pytest.approx(expected)
    true, false = torch.tensor([0]), torch.tensor([1])
    assert proxy_nca(logits, true).item() == pytest.approx(functional.cross_entropy(logits, true).item())
    assert proxy_nca(logits, false) > functional.cross_entropy(logits, false)
    assert proxy_nca(logits - 0.6, false).item() == pytest.approx(proxy_nca(logits, false).item())


def test_a_class_that_wins_by_less_than_the_margin_still_learns() -> None:
    logits = torch.tensor([[3.0, 0.0], [3.0, 0.0]], requires_grad=True)
    local_similarity(logits, torch.tensor([0, 0]), 2.0).backward()
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    local_similarity(logits, torch.tensor([0, 0]), 4.0).backward()
    assert logits.grad.tolist() == [[-0.5, 0.5], [-0.5, 0.5]]


def test_a_single_class_has_no_rivals_and_no_loss() -> None:
    logits = torch.tensor([[0.3], [-2.0]], requires_grad=True)
    loss = local_similarity(logits, torch.tensor([0, 0]), 0.6)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_pod_flat_is_one_minus_the_cosine() -> None:
    features = torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, -2.0]])
    old_features = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 7.0]])
    expected = (0 + (1 - math.sqrt(0.5)) + 2) / 3
    assert pod_flat(features, old_features).item() == pytest.approx(expected)


def test_pod_spatial_is_the_distance_of_row_and_column_energies() -> None:
    maps = torch.tensor([[[[1.0, 2.0], [0.0, 1.0]]]])
    old_maps = torch.tensor([[[[0.0, 0.0], [0.0, 3.0]]]])
    # Squares [[1, 4], [0, 1]]: rows 5 and 1, columns 1 and 5. Old: rows 0 and 9, columns 0 and 9.
    pooled = torch.tensor([5.0, 1.0, 1.0, 5.0]) / math.sqrt(52)
    old_pooled = torch.tensor([0.0, 9.0, 0.0, 9.0]) / math.sqrt(162)
    expected = (pooled - old_pooled).norm().item()
    assert pod_spatial([maps], [old_maps]).item() == pytest.approx(expected)
    # The mean over two stages, one of which agrees.
    assert pod_spatial([maps, old_maps], [old_maps, old_maps]).item() == pytest.approx(expected / 2)


def test_pod_spatial_allows_what_keeps_the_energies_of_rows_and_columns() -> None:
    checks = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    mirrored, moved = checks.flip(3), torch.tensor([[[[1.0, 1.0], [0.0, 0.0]]]])
    assert pod_spatial([checks], [mirrored]).item() == pytest.approx(0.0, abs=1e-7)
    assert pod_spatial([checks], [-3 * checks]).item() == pytest.approx(0.0, abs=1e-7)
    assert pod_spatial([checks], [moved]).item() > 0.3


def test_pod_losses_have_finite_gradients_where_both_networks_agree() -> None:
    maps, features = random(2, 3, 4, 4).requires_grad_(), random(2, 5).requires_grad_()
    (pod_spatial([maps], [maps.detach()]) + pod_flat(features, features.detach())).backward()
    assert maps.grad is not None
    assert features.grad is not None
    assert maps.grad.isfinite().all()
    assert features.grad.isfinite().all()


def test_pod_losses_are_as_precise_for_half_precision_maps() -> None:
    maps, old_maps = (random(4, 8, 16, 16, seed=seed).bfloat16() for seed in (0, 1))
    assert pod_spatial([maps], [old_maps]).item() == pod_spatial([maps.float()], [old_maps.float()]).item()


def test_cosines_are_those_of_every_feature_with_every_classifier() -> None:
    found = cosines(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[5.0, 0.0], [0.0, 0.1], [-1.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8, -0.6], [0.0, 1.0, 0.0]]))


# A feature along the first of two carried classifiers has the cosines (1, 0). With sigma = 2 log 3 and T = 2 their
# softmax is (3/4, 1/4); the other side's logits (0, 2 log 4) give (1/5, 4/5).
FEATURE, CARRIED = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 0.3]])
SCALE, LOGITS = torch.tensor(2 * math.log(3)), torch.tensor([[0.0, 2 * math.log(4)]])


def test_prospective_transport_teaches_the_logits_what_the_carried_classifiers_say() -> None:
    loss = prospective_transport(LOGITS, FEATURE, CARRIED, SCALE, 2.0)
    assert loss.item() == pytest.approx(3 / 4 * math.log(5) + 1 / 4 * math.log(5 / 4))


def test_retrospective_transport_teaches_the_carried_classifiers_what_the_old_network_says() -> None:
    loss = retrospective_transport(FEATURE, CARRIED, SCALE, LOGITS, 2.0)
    assert loss.item() == pytest.approx(1 / 5 * math.log(4 / 3) + 4 / 5 * math.log(4))


def test_only_the_student_of_a_transport_learns() -> None:
    inputs = [tensor.clone().requires_grad_() for tensor in (LOGITS, FEATURE, CARRIED, SCALE)]
    logits, features, classifiers, scale = inputs
    prospective_transport(logits, features, classifiers, scale, 2.0).backward()
    assert [tensor.grad is not None for tensor in inputs] == [True, False, False, False]
    logits.grad = None
    retrospective_transport(features, classifiers, scale, logits.detach(), 2.0).backward()
    assert [tensor.grad is not None for tensor in inputs] == [False, True, True, False]


def test_the_auxiliary_loss_has_one_class_for_all_known_and_one_for_each_new() -> None:
    logits = random(5, 3)
    labels = torch.tensor([0, 6, 7, 8, 3])  # classes 7 and 8 are new
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 0, 1, 2, 0]))
    assert torch.equal(auxiliary_cross_entropy(logits, labels, num_known=7), expected)
