"""Optimal transport: plans against closed forms and a linear programme, and what they carry."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from foster.methods.transport import carried, sinkhorn


def random_cost(num_rows: int, num_columns: int, seed: int = 0) -> Tensor:
    return torch.rand(num_rows, num_columns, generator=torch.Generator().manual_seed(seed))


def test_a_plan_between_two_and_two_classes_equals_its_closed_form() -> None:
    # By symmetry the plan is [[a, b], [b, a]] with a + b = 1/2 and a / b = exp(c / entropy).
    plan = sinkhorn(torch.tensor([[0.0, 3.0], [3.0, 0.0]]), entropy=2.0)
    a = 0.5 / (1 + math.exp(-1.5))
    torch.testing.assert_close(plan, torch.tensor([[a, 0.5 - a], [0.5 - a, a]]))


@pytest.mark.parametrize(("num_rows", "num_columns"), [(90, 10), (50, 2), (3, 7), (1, 4), (5, 1)])
def test_every_class_gives_and_receives_its_equal_share(num_rows: int, num_columns: int) -> None:
    plan = sinkhorn(2 * random_cost(num_rows, num_columns), entropy=0.464)
    assert plan.shape == (num_rows, num_columns)
    assert (plan > 0).all()
    torch.testing.assert_close(plan.sum(1), torch.full((num_rows,), 1 / num_rows))
    torch.testing.assert_close(plan.sum(0), torch.full((num_columns,), 1 / num_columns))


def test_little_entropy_gives_the_plan_of_least_cost() -> None:
    num_rows, num_columns = 6, 4
    cost = random_cost(num_rows, num_columns).double()
    plan = sinkhorn(cost, entropy=0.002, num_rounds=5000)
    rows = np.kron(np.eye(num_rows), np.ones(num_columns))
    columns = np.kron(np.ones(num_rows), np.eye(num_columns))
    shares = np.concatenate([np.full(num_rows, 1 / num_rows), np.full(num_columns, 1 / num_columns)])
    exact = linprog(cost.flatten().numpy(), A_eq=np.concatenate([rows, columns]), b_eq=shares)
    assert (plan * cost).sum().item() == pytest.approx(exact.fun, abs=1e-3)


def test_much_entropy_spreads_evenly() -> None:
    plan = sinkhorn(random_cost(4, 5), entropy=1e6)
    torch.testing.assert_close(plan, torch.full((4, 5), 1 / 20))


def test_costs_that_underflow_outside_the_log_domain_are_no_trouble() -> None:
    cost = 1e6 * (1 - torch.eye(5))
    torch.testing.assert_close(sinkhorn(cost, entropy=0.1), torch.eye(5) / 5)


def test_classifiers_are_carried_in_float32_where_training_computes_in_bfloat16() -> None:
    plan, classifiers = sinkhorn(random_cost(5, 3), entropy=0.5), torch.randn(5, 64)
    expected = carried(plan, classifiers)
    with torch.autocast("cpu", torch.bfloat16):
        found = carried(plan, classifiers)
    assert found.dtype is torch.float32
    assert torch.equal(found, expected)


def test_an_exact_plan_carries_each_classifier_to_its_partner_and_back() -> None:
    plan = torch.eye(3)[[2, 0, 1]] / 3  # row 0 goes to column 2, row 1 to column 0, row 2 to column 1
    classifiers = torch.tensor([[2.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 0.1]])
    directions = torch.eye(3)
    there = carried(plan, classifiers)
    torch.testing.assert_close(there, directions[[1, 2, 0]])
    torch.testing.assert_close(carried(plan.T, there), directions)


def test_classifiers_are_means_of_directions_weighted_by_the_plan() -> None:
    plan = torch.tensor([[0.3, 0.2], [0.2, 0.3]])
    there = carried(plan, torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    # Column 0 takes 0.6 of the direction (0.6, 0.8) and 0.4 of (0, 1); column 1 the other way round.
    torch.testing.assert_close(there, torch.tensor([[0.36, 0.88], [0.24, 0.92]]))


def test_a_direction_that_all_classes_share_is_carried_as_it_is_whatever_their_numbers() -> None:
    plan = sinkhorn(random_cost(5, 2), entropy=0.5)
    there = carried(plan, torch.tensor([[3.0, 4.0]]).repeat(5, 1))
    torch.testing.assert_close(there, torch.tensor([[0.6, 0.8]]).repeat(2, 1))


def test_gradients_reach_the_classifiers_but_not_the_plan() -> None:
    cost = random_cost(3, 2).requires_grad_()
    classifiers = torch.eye(3, requires_grad=True)
    plan = sinkhorn(cost, entropy=0.5)
    assert not plan.requires_grad
    carried(plan, classifiers)[0, 1].backward()
    assert classifiers.grad is not None
    assert (classifiers.grad != 0).any()
