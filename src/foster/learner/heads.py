"""The head that follows from sums of features, and how well it does on photos that had no part in it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from foster.learner.calibration import USUAL_SPREAD, spread_of
from foster.learner.features import FeatureStore
from foster.networks.heads import RootHead
from foster.networks.statistics import Statistics, discriminants_of_few, left_out_scores

SHRINKAGE = 0.5
"""Of the covariance of roots of features: results/notes/photo-heads.md."""

MOST_MEASURED = 2000
"""Of more photos, so many are measured, about equally many of each class: more would hardly change the number."""

LEAST_MEASURED = 5
"""So many of each class are measured in any case."""


def linear_discriminants(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Weight `[C, d]` and bias `[C]`, float64, of shrunk linear discriminants, corrected for classes of few photos."""
    return discriminants_of_few(statistics, SHRINKAGE)


@dataclass(frozen=True, eq=False)
class Solved:
    """A head, and the scores of photos by heads without them (leave-one-out)."""

    head: RootHead
    positions: Tensor
    """Which of the photos given were measured, int64 `[n]`."""
    scores: Tensor
    """Their scores `[n, C]`, on the scale of the head."""


def solve(
    statistics: Statistics, features: Tensor, labels: Tensor, ids: tuple[str, ...], scale: float | None = None
) -> Solved:
    """The head that follows from `statistics`, which include the photos of stored `features` `[n, d]`; each of these is
    measured by the head of all other photos. A photo without another one of its class is not measured.

    Scores are divided by a `scale`. By default those of left-out photos get the usual spread: then a temperature of 1
    is a good guess.
    """
    positions = _measured(labels, ids, statistics.num_classes)
    scores, is_judged = left_out_scores(statistics, SHRINKAGE, features[positions], labels[positions])
    positions, scores = positions[is_judged], scores[is_judged]
    weight, bias = linear_discriminants(statistics)
    weight, bias = weight - weight.mean(0), bias - bias.mean()
    if scale is None or not scale > 0:
        scale = spread_of(scores) / USUAL_SPREAD if len(scores) else 0.0
    if not scale > 0:
        scale = float(weight.norm()) or 1.0
    head = RootHead.from_values((weight / scale).float(), (bias / scale).float())
    return Solved(head, positions, (scores / scale).float())


def scale_of(statistics: Statistics, head: RootHead) -> float:
    """What the scores of a head were divided by that followed from these statistics."""
    weight, _ = linear_discriminants(statistics)
    return float((weight - weight.mean(0)).norm()) / max(float(head.weight.detach().norm()), 1e-12)


def _measured(labels: Tensor, ids: tuple[str, ...], num_classes: int) -> Tensor:
    """Positions of up to MOST_MEASURED photos, those with the smallest ids of each class, ascending."""
    quota = max(LEAST_MEASURED, MOST_MEASURED // max(1, num_classes))
    counts = [0] * num_classes
    chosen: list[int] = []
    for position in sorted(range(len(ids)), key=lambda k: ids[k]):
        label = int(labels[position])
        counts[label] += 1
        if counts[label] <= quota:
            chosen.append(position)
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def kept_photos(store: FeatureStore) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Features, labels and ids of the photos of a store whose features are kept."""
    return store.features, store.kept_labels, tuple(store.ids[k] for k in store.rows.tolist())
