"""One row of a linear head for several classes: its probability is to be the sum of theirs.

The sum of softmax probabilities has the logit log(exp z_a + exp z_b), which no linear row gives exactly. The row that
comes nearest to it on the kept photos is found among the combinations of all present rows: a logistic regression on as
many numbers as there are classes, so that few photos suffice.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

RIDGE = 1e-2
"""What draws the combination to the plain sum of the members' rows."""

NUM_STEPS = 50
STEP_LENGTHS = [0.5**k for k in range(12)]
LEAST_CURVATURE = 1e-9


def merged_row(
    weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor, members: Sequence[int], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Weight `[d]` and bias `[]` of the class that `members` become, for a head of weight `[C, d]` and bias `[C]`.

    It is fitted on features `[N, d]` with labels `[N]`, among which every class counts the same.

    The others keep their rows, so that only what the merged class takes from them changes. Where there are no others,
    any row will do, and the mean is taken.
    """
    rows, offsets, chosen = weight.detach().double(), bias.detach().double(), list(members)
    others = [k for k in range(len(rows)) if k not in chosen]
    if not others:
        return weight.detach().mean(0), bias.detach().mean()
    logits = (features.to(rows) @ rows.T + offsets) / temperature
    rest = logits[:, others].logsumexp(1)
    wanted = torch.sigmoid(logits[:, chosen].logsumexp(1) - rest)
    labels = labels.to(rows.device)
    share = 1 / torch.bincount(labels, minlength=len(rows))[labels].double()
    share = share / share.sum()
    mean = logits.mean(1, keepdim=True)  # a softmax does not see what all logits have in common
    plain = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    plain[chosen] = 1.0
    known = torch.cat((logits - mean, torch.ones_like(mean)), dim=1)
    begin = mean[:, 0] + (logits - mean) @ plain - rest
    ridge = torch.full((len(rows) + 1,), RIDGE, dtype=rows.dtype, device=rows.device)
    ridge[-1] = 0.0  # the bias is free
    change = _fitted(begin, known, wanted, share, ridge)
    factors, shift = plain + change[:-1], change[-1]
    mixture = factors + (1 - factors.sum()) / len(rows)
    return (mixture @ rows).to(weight), (mixture @ offsets + temperature * shift).to(bias)


def _fitted(begin: Tensor, known: Tensor, wanted: Tensor, share: Tensor, ridge: Tensor) -> Tensor:
    """The factors `[k]` with which `begin + known @ factors` are the logits of the `wanted` probabilities `[N]` as well
    as can be, each weighted by its `share`, where the square of each factor costs half its `ridge` `[k]`."""

    def loss(change: Tensor) -> Tensor:
        fit = functional.binary_cross_entropy_with_logits(begin + known @ change, wanted, share, reduction="sum")
        return fit + (ridge * change.square()).sum() / 2

    # Newton's method: torch's optimisers import its compiler, which takes longer than all of this.
    change = torch.zeros_like(ridge)
    for _ in range(NUM_STEPS):
        predicted = torch.sigmoid(begin + known @ change)
        slope = known.T @ (share * (predicted - wanted)) + ridge * change
        weights = share * predicted * (1 - predicted)
        curvature = known.T @ (known * weights[:, None]) + torch.diag(ridge + LEAST_CURVATURE)
        step, before = torch.linalg.solve(curvature, slope), loss(change)
        length = next((length for length in STEP_LENGTHS if loss(change - length * step) < before), None)
        if length is None:
            break
        change = change - length * step
    return change
