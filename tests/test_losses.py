"""Every loss against numbers worked out by hand, with logits whose softmax is a simple fraction."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foster.losses import (
    auxiliary_cross_entropy,
    balanced_distillation,
    balanced_distillation_of_paper,
    class_weights,
    distillation,
    effective_number,
    local_similarity,
    logit_scales_of_paper,
    logits_alignment,
    new_class_cross_entropy,
    pod_flat,
    pod_spatial,
    prospective_transport,
    proxy_nca,
    retrospective_transport,
)

LOG_2, LOG_3, LOG_4 = math.log(2), math.log(3), math.log(4)


# A feature along the first of two transported classifiers has the cosines (1, 0). With sigma = 2 log 3 and T = 2 their
# softmax is (3/4, 1/4); the other side's logits (0, 2 log 4) give (1/5, 4/5).
FEATURE, TRANSPORTED = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 0.3]])
SCALE, LOGITS = torch.tensor(2 * math.log(3)), torch.tensor([[0.0, 2 * math.log(4)]])


def logits(*rows: list[float], temperature: float = 1.0) -> Tensor:
    """Logits whose softmax at `temperature` is each row, divided by its sum."""
    return temperature * torch.tensor(rows).log()


def test_the_effective_number_is_a_geometric_sum() -> None:
    found = effective_number(torch.tensor([1, 2, 3]), 0.5)
    assert found.tolist() == [1, 1 + 0.5, 1 + 0.5 + 0.25]


def test_beta_of_one_counts_images_and_is_the_limit_of_those_below_it() -> None:
    counts = torch.tensor([0, 1, 20, 500])
    assert effective_number(counts, 1).tolist() == [1, 1, 20, 500]
    assert effective_number(counts, 1 - 1e-9) == pytest.approx(effective_number(counts, 1), rel=1e-6)
    assert class_weights(counts[1:], 1).tolist() == pytest.approx([x * 3 / 1.052 for x in (1, 0.05, 0.002)])


def test_logits_alignment_scales_logits_before_the_softmax() -> None:
    # z = (log 2, log 2) scaled by (1, 2) is (log 2, log 4), whose softmax is (1/3, 2/3).
    z = torch.full((1, 2), LOG_2)
    scales = torch.tensor([1.0, 2.0])
    assert logits_alignment(z, torch.tensor([0]), scales).item() == pytest.approx(LOG_3)
    assert logits_alignment(z, torch.tensor([1]), scales).item() == pytest.approx(LOG_3 - LOG_2)


def test_new_class_cross_entropy_sees_the_new_logits_alone() -> None:
    z = logits([100, 1, 3], [100, 1, 1])
    assert new_class_cross_entropy(z, torch.tensor([1, 2]), 1).item() == pytest.approx((LOG_4 + LOG_2) / 2)


def test_new_class_cross_entropy_counts_an_image_of_a_known_class_as_zero() -> None:
    z = logits([100, 1, 3], [5, 1, 1]).requires_grad_()
    loss = new_class_cross_entropy(z, torch.tensor([1, 0]), 1)
    loss.backward()
    assert loss.item() == pytest.approx(LOG_4 / 2)
    assert z.grad is not None
    assert z.grad[1].tolist() == [0, 0, 0]
    assert new_class_cross_entropy(z, torch.tensor([0, 0]), 1).item() == 0
    assert new_class_cross_entropy(z, torch.tensor([0, 1]), 2).item() == 0, "of whichever known class"


def test_auxiliary_cross_entropy_joins_all_known_classes_in_class_zero() -> None:
    # Known classes 0 and 1 become 0; the new classes 2 and 3 become 1 and 2.
    z = logits([2, 1, 3], [2, 1, 3], [1, 2, 1], [4, 3, 1])
    loss = auxiliary_cross_entropy(z, torch.tensor([0, 1, 2, 3]), 2)
    assert loss.item() == pytest.approx((LOG_3 + LOG_3 + LOG_2 + 3 * LOG_2) / 4)


def test_distillation_is_the_cross_entropy_between_softened_outputs() -> None:
    # At T = 2 the teacher says (1/4, 3/4) and the student (1/2, 1/2), then (3/4, 1/4).
    teacher = logits([1, 3], [1, 3], temperature=2)
    student = logits([1, 1], [3, 1], temperature=2)
    first = LOG_2
    second = (LOG_4 - LOG_3) / 4 + 3 * LOG_4 / 4
    assert distillation(student, teacher, 2).item() == pytest.approx((first + second) / 2)


def test_balanced_distillation_weighs_the_teacher_and_makes_it_sum_to_one_again() -> None:
    # w * (1/4, 3/4) = (3/2, 1/2) * (1/4, 3/4) = (3/8, 3/8), re-normalised (1/2, 1/2).
    teacher, student = logits([1, 3], temperature=2), logits([1, 3], temperature=2)
    loss = balanced_distillation(student, teacher, torch.tensor([1.5, 0.5]), 2)
    assert loss.item() == pytest.approx((LOG_4 + LOG_4 - LOG_3) / 2)


def test_balanced_distillation_of_the_paper_is_a_divergence_without_normalisation() -> None:
    # The targets are (3/8, 3/8) and the student says (1/2, 1/2): 2 * 3/8 * log(3/4).
    teacher, student = logits([1, 3]), logits([1, 1])
    loss = balanced_distillation_of_paper(student, teacher, torch.tensor([1.5, 0.5]))
    assert loss.item() == pytest.approx(3 / 4 * (LOG_3 - LOG_4))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "distillation": lambda student, teacher: distillation(student, teacher, 2),
    "balanced_distillation": lambda student, teacher: balanced_distillation(student, teacher, torch.ones(2), 2),
    "balanced_distillation_of_paper": lambda student, teacher: balanced_distillation_of_paper(
        student, teacher, torch.ones(2)
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_distillation_stays_finite_for_confident_teachers(name: str) -> None:
    student = torch.tensor([[0.0, 200.0]], requires_grad=True)
    loss = LOSSES[name](student, torch.tensor([[200.0, 0.0]]))
    loss.backward()
    assert torch.isfinite(loss)
    assert student.grad is not None
    assert torch.isfinite(student.grad).all()


@pytest.mark.parametrize("num_known", [0, 3])
def test_the_papers_scales_are_one_where_all_classes_are_old_or_all_are_new(num_known: int) -> None:
    assert logit_scales_of_paper(torch.tensor([5, 20, 500]), 0.97, num_known).tolist() == [1.0, 1.0, 1.0]


def test_the_papers_scales_compare_the_mean_old_class_with_the_mean_new_one() -> None:
    # With beta = 1/2, E_1 = 1 and E_2 = 3/2; the mean of both is 5/4.
    assert logit_scales_of_paper(torch.tensor([1, 2]), 0.5, 1).tolist() == pytest.approx([2 / 5, 3 / 5])
    scales = logit_scales_of_paper(torch.tensor([1, 2, 2]), 0.5, 2)
    assert scales.tolist() == pytest.approx([5 / 11, 5 / 11, 6 / 11])
    assert scales.dtype == torch.float32


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
    together = proxy_nca(torch.cat([logits, logits + 5]), torch.cat([true, false]))
    assert together.item() == pytest.approx((proxy_nca(logits, true) + proxy_nca(logits, false)).item() / 2)


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
    # The mean over two stages, one of which agrees, and over two images alike.
    assert pod_spatial([maps, old_maps], [old_maps, old_maps]).item() == pytest.approx(expected / 2)
    both, old_both = torch.cat([maps, old_maps]), torch.cat([old_maps, old_maps])
    assert pod_spatial([both], [old_both]).item() == pytest.approx(expected / 2)


def test_pod_losses_have_finite_gradients_where_both_networks_agree() -> None:
    maps, features = random(2, 3, 4, 4).requires_grad_(), random(2, 5).requires_grad_()
    (pod_spatial([maps], [maps.detach()]) + pod_flat(features, features.detach())).backward()
    assert maps.grad is not None
    assert features.grad is not None
    assert maps.grad.isfinite().all()
    assert features.grad.isfinite().all()


def test_prospective_transport_teaches_the_logits_what_the_transported_classifiers_say() -> None:
    loss = prospective_transport(LOGITS, FEATURE, TRANSPORTED, SCALE, 2.0)
    assert loss.item() == pytest.approx(3 / 4 * math.log(5) + 1 / 4 * math.log(5 / 4))


def test_retrospective_transport_teaches_the_transported_classifiers_what_the_old_network_says() -> None:
    loss = retrospective_transport(FEATURE, TRANSPORTED, SCALE, LOGITS, 2.0)
    assert loss.item() == pytest.approx(1 / 5 * math.log(4 / 3) + 4 / 5 * math.log(4))


def test_only_the_student_of_a_transport_learns() -> None:
    inputs = [tensor.clone().requires_grad_() for tensor in (LOGITS, FEATURE, TRANSPORTED, SCALE)]
    logits, features, classifiers, scale = inputs
    prospective_transport(logits, features, classifiers, scale, 2.0).backward()
    assert [tensor.grad is not None for tensor in inputs] == [True, False, False, False]
    logits.grad = None
    retrospective_transport(features, classifiers, scale, logits.detach(), 2.0).backward()
    assert [tensor.grad is not None for tensor in inputs] == [False, True, True, False]


def operations(tensor: Tensor) -> set[str]:
    """The names of all steps of the backward pass."""
    found, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [function for function, _ in node.next_functions]
    return {node.name() for node in found}


def test_the_loss_of_podnet_has_the_gradients_of_gather_and_scatter_but_neither_of_them() -> None:
    """Their deterministic backward passes may wait for the host, which no recorded step can do."""
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 7, generator=chance, requires_grad=True)
    labels = torch.randint(7, (16,), generator=chance)
    loss = local_similarity(logits, labels, margin=0.6)
    assert not any(word in name for name in operations(loss) for word in ("Gather", "Scatter", "Index"))
    rivals = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    expected = torch.relu(rivals - (logits.gather(1, labels[:, None]).squeeze(1) - 0.6)).mean()
    assert torch.equal(loss, expected)
    found, wanted = torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0]
    assert torch.equal(found, wanted)
