"""Optimal transport between two sets of classes: which of them correspond, and classifiers carried across.

Sinkhorn's algorithm stands here and POT (Python Optimal Transport, `ot.sinkhorn`) is not a dependency: it is all that
we would use of that library, and a few lines on a matrix of classes by classes. Ours runs on the device that holds the
features, in the log domain where no kernel underflows, and for a fixed number of rounds; POT tests for convergence
every few rounds, and each test makes the host wait for the device.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from foster.networks.heads import precise_linear

NUM_ROUNDS = 200


@torch.no_grad()
def sinkhorn(cost: Tensor, entropy: float, num_rounds: int = NUM_ROUNDS) -> Tensor:
    """The plan P `[n, m]` that minimises `sum(P * cost) + entropy * sum(P log P)`; rows sum to 1/n, columns to 1/m.

    Every class is equally heavy on its side. The columns' sums are exact, the rows' as far as the rounds have come.
    """
    num_rows, num_columns = cost.shape
    kernel = -cost.double() / entropy
    columns = kernel.new_zeros(num_columns)
    for _ in range(num_rounds):
        rows = -math.log(num_rows) - torch.logsumexp(kernel + columns, dim=1)
        columns = -math.log(num_columns) - torch.logsumexp(kernel + rows[:, None], dim=0)
    return (kernel + rows[:, None] + columns).exp().to(cost.dtype)


def carried(plan: Tensor, classifiers: Tensor) -> Tensor:
    """Classifiers `[m, d]` of the plan's columns, from those of its rows `[n, d]`; the transposed plan leads back.

    Each is the mean of the rows' directions, weighted by what the plan `[n, m]` moves between the two classes.
    """
    return plan.shape[1] * precise_linear(plan.T, functional.normalize(classifiers, dim=1).T)
