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

NUM_STEPS = 200


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
    factors = plain.clone().requires_grad_()
    shift = torch.zeros((), dtype=rows.dtype, device=rows.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([factors, shift], max_iter=NUM_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        logit = mean[:, 0] + (logits - mean) @ factors + shift
        fit = functional.binary_cross_entropy_with_logits(logit - rest, wanted, share, reduction="sum")
        return fit + RIDGE / 2 * (factors - plain).square().sum()

    def step() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        factors.grad, shift.grad = torch.autograd.grad(value, (factors, shift))
        return value

    optimiser.step(step)
    mixture = factors.detach() + (1 - factors.detach().sum()) / len(rows)
    return (mixture @ rows).to(weight), (mixture @ offsets + temperature * shift.detach()).to(bias)
