"""Heads that follow from sums of features, and how well they do on photos that had no part in them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foster.learner.calibration import USUAL_SPREAD
from foster.learner.features import FeatureStore, less
from foster.networks.heads import RootHead
from foster.networks.statistics import Statistics, discriminants_of_few

SHRINKAGE = 0.5
"""Of the covariance of roots of features: results/notes/photo-heads.md."""

NUM_FOLDS = 5
MOST_MEASURED = 2000
"""Of more photos, so many are measured, about equally many of each class: more would hardly change the number."""


def linear_discriminants(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Weight `[C, d]` and bias `[C]`, float64, of shrunk linear discriminants, corrected for classes of few photos."""
    return discriminants_of_few(statistics, SHRINKAGE)


HEADS: dict[str, Callable[[Statistics], tuple[Tensor, Tensor]]] = {"discriminants": linear_discriminants}
"""By the name in the settings: from sums over all photos to the weight `[C, d]` and the bias `[C]` of a linear head."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A head, and the scores of photos that had no part in it, by five-fold cross-validation."""

    head: RootHead
    positions: Tensor
    """Which of the photos given were measured, int64 `[n]`."""
    scores: Tensor
    """Their scores `[n, C]`, on the scale of the head; -inf for a class of which no other photo is there."""


def solve(
    name: str,
    statistics: Statistics,
    features: Tensor,
    labels: Tensor,
    ids: tuple[str, ...],
    scale: float | None = None,
) -> Solved:
    """The head that follows from `statistics`, which include the photos of stored `features` `[n, d]`, and what heads
    without them say of these.

    Scores are divided by a `scale`. By default those of photos not seen get the usual spread: then a temperature of 1
    is a good guess.
    """
    make = HEADS[name]
    positions, scores = cross_validated(make, statistics, features, labels, ids)
    weight, bias = make(statistics)
    weight, bias = weight - weight.mean(0), bias - bias.mean()
    if scale is None or not scale > 0:
        scale = spread_of(scores) / USUAL_SPREAD if len(scores) else 0.0
    if not scale > 0:
        scale = float(weight.norm()) or 1.0
    head = RootHead.from_values((weight / scale).float(), (bias / scale).float())
    return Solved(head, positions, (scores / scale).float())


def scale_of(name: str, statistics: Statistics, head: RootHead) -> float:
    """What the scores of a head were divided by that followed from these statistics."""
    weight, _ = HEADS[name](statistics)
    return float((weight - weight.mean(0)).norm()) / max(float(head.weight.detach().norm()), 1e-12)


def cross_validated(
    make: Callable[[Statistics], tuple[Tensor, Tensor]],
    statistics: Statistics,
    features: Tensor,
    labels: Tensor,
    ids: tuple[str, ...],
) -> tuple[Tensor, Tensor]:
    """Positions `[n]` of up to MOST_MEASURED photos, and their scores `[n, C]`, float64, each by a head from all photos
    but those of its fold. A photo without another one of its class is not measured."""
    num_classes, num_features = statistics.sums.shape
    quota = max(NUM_FOLDS, MOST_MEASURED // max(1, num_classes))
    turns: list[int] = [0] * num_classes
    fold = torch.full((len(ids),), -1, dtype=torch.int64)
    for position in sorted(range(len(ids)), key=lambda k: ids[k]):
        label = int(labels[position])
        if turns[label] < quota:
            fold[position] = turns[label] % NUM_FOLDS
        turns[label] += 1
    scores = torch.full((len(ids), num_classes), -torch.inf, dtype=torch.float64)
    for number in range(NUM_FOLDS):
        inside = fold == number
        if not bool(inside.any()):
            continue
        own = features[inside].double()
        others = less(statistics, Statistics.empty(num_classes, num_features).added(own, labels[inside]))
        if not others.num_images:
            continue
        weight, bias = make(others)
        bias = torch.where(others.counts > 0, bias, -torch.inf)
        scores[inside] = own @ weight.T + bias
    is_measured = scores.gather(1, labels[:, None])[:, 0].isfinite() if len(ids) else fold >= 0
    positions = is_measured.nonzero()[:, 0]
    return positions, scores[positions]


def spread_of(scores: Tensor) -> float:
    """The standard deviation of scores `[n, C]` about the mean of their photo, which a softmax does not see."""
    known = scores.where(scores.isfinite(), torch.nan)
    return float((known - known.nanmean(1, keepdim=True)).square().nanmean().sqrt())


def kept_photos(store: FeatureStore) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Features, labels and ids of the photos of a store whose features are kept."""
    return store.features, store.kept_labels, tuple(store.ids[k] for k in store.rows.tolist())
