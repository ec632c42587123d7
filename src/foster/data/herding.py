"""Selection of exemplars: herding (Welling 2009, as in iCaRL) and random selection.

All functions return positions in selection order: the first m of a longer selection are the selection of m.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

NORM_EPSILON = 1e-8


def unit_length(features: Tensor) -> Tensor:
    """Rows `v / (|v| + 1e-8)`, `[N, d]`, in float32, or in float64 if the features are float64."""
    rows = features if features.dtype == torch.float64 else features.float()
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / (norms + NORM_EPSILON)


def positions_by_class(labels: Tensor, class_ids: Sequence[int]) -> list[Tensor]:
    """For each class id, its positions in `labels` `[N]`, in ascending order (possibly empty)."""
    ordered, positions = torch.sort(labels, stable=True)
    ids = torch.as_tensor(class_ids, dtype=labels.dtype, device=labels.device)
    bounds = torch.stack([torch.searchsorted(ordered, ids), torch.searchsorted(ordered, ids, right=True)], dim=1)
    return [positions[first:last] for first, last in bounds.tolist()]


@torch.no_grad()
def herding_by_class(features: Tensor, labels: Tensor, class_ids: Sequence[int], count: int) -> list[Tensor]:
    """For each class id, up to `count` positions in `features` `[N, d]` whose running mean approximates the class mean.

    With v the unit-length features and mu their plain mean, the k-th choice is the v not yet chosen that minimises
    `|mu - (S + v) / k|`, where S is the sum of the k - 1 chosen before it; the first position wins a tie.
    """
    members = positions_by_class(labels.to(features.device), class_ids)
    vectors = unit_length(features)
    return [positions[_herded(vectors[positions], count)] for positions in members]


def _herded(vectors: Tensor, count: int) -> Tensor:
    """Up to `count` positions in the unit-length vectors `[n, d]` of one class. The host never waits for the device."""
    num_chosen = min(count, len(vectors))
    chosen = torch.empty(num_chosen, dtype=torch.int64, device=vectors.device)
    is_taken = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
    mean = vectors.sum(0) / max(1, len(vectors))
    total = torch.zeros_like(mean)
    for turn in range(num_chosen):
        # k^2 |mu - (S + v) / k|^2 = |(k mu - S) - v|^2 has the same minimum. A matrix product is not used: it may round
        # equal rows differently, depending on their positions, and thus break ties at random.
        target = (turn + 1) * mean - total
        distances = (vectors - target).square_().sum(-1)
        choice = distances.masked_fill_(is_taken, torch.inf).argmin(0, keepdim=True)
        chosen[turn : turn + 1] = choice
        is_taken[choice] = True
        total += vectors[choice][0]
    return chosen


def random_selection(num_images: int, count: int, generator: torch.Generator) -> Tensor:
    """`min(count, num_images)` different positions in random order, int64 on the generator's device."""
    return torch.randperm(num_images, generator=generator, device=generator.device)[:count]
