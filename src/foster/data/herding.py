"""Selection of exemplars: herding (Welling 2009, as in iCaRL) and random selection.

All functions return positions in selection order: the first m of a longer selection are the selection of m.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

NORM_EPSILON = 1e-8

HERDED_AT_ONCE, HERDED_AT_ONCE_BY_CPU = 2**26, 2**20
"""The largest number of elements, padding included, of a batch of classes; on a CPU about the size of its cache."""


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
    sizes = [len(positions) for positions in members]
    chosen: dict[int, Tensor] = {}
    most = HERDED_AT_ONCE_BY_CPU if features.device.type == "cpu" else HERDED_AT_ONCE
    for indices in _similar(sizes, most // max(1, features.shape[1])):
        padded = pad_sequence([vectors[members[index]] for index in indices], batch_first=True)
        selections = _herd(padded, [sizes[index] for index in indices], count)
        chosen.update(zip(indices, selections, strict=True))
    return [positions[chosen[index]] for index, positions in enumerate(members)]


def _similar(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Group indices into batches of similar sizes: no group is padded to more than twice its size, and a batch has at
    most `most` rows."""
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index], reverse=True):
        is_near = len(batches) > 0 and 2 * sizes[index] >= longest
        if is_near and (len(batches[-1]) + 1) * longest <= most:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = sizes[index]
    return batches


def _herd(vectors: Tensor, sizes: Sequence[int], count: int) -> list[Tensor]:
    """Herding of each group of unit-length vectors `[groups, longest, d]`, padded with zeros, in parallel."""
    num_groups, longest, _ = vectors.shape
    num_turns = min(count, longest)
    device = vectors.device
    # Means exclude the padding, so that the selection of a class does not depend on the other classes of the batch.
    means = torch.stack([group[:size].sum(0) / max(size, 1) for group, size in zip(vectors, sizes, strict=True)])
    is_taken = torch.arange(longest, device=device) >= torch.tensor(sizes, device=device)[:, None]
    chosen = torch.empty(num_groups, num_turns, dtype=torch.int64, device=device)
    rows = torch.arange(num_groups, device=device)
    total = torch.zeros_like(means)
    for turn in range(num_turns):
        # k^2 |mu - (S + v) / k|^2 = |(k mu - S) - v|^2 has the same minimum. A matrix product is not used: it may round
        # equal rows differently, depending on their positions, and thus break ties at random.
        target = (turn + 1) * means - total
        distances = (vectors - target[:, None]).square_().sum(-1)
        choice = distances.masked_fill_(is_taken, torch.inf).argmin(1)
        chosen[:, turn] = choice
        is_taken[rows, choice] = True
        total += vectors[rows, choice]
    return [row[:size] for row, size in zip(chosen, sizes, strict=True)]


def random_selection(num_images: int, count: int, generator: torch.Generator) -> Tensor:
    """`min(count, num_images)` different positions in random order, int64 on the generator's device."""
    return torch.randperm(num_images, generator=generator, device=generator.device)[:count]
