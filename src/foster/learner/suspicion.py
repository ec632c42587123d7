"""Photos that are probably in the wrong class, by probabilities of a classifier that was not trained on them.

Confident learning (Northcutt, Jiang, Chuang: "Confident learning", 2021): a photo that another class claims more surely
than it claims its own photos on average is probably one of its own. Where cleanlab is installed, it decides.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foster.data.herding import unit_length
from foster.learner.calibration import USUAL_SPREAD, fit_temperature, probabilities
from foster.learner.heads import linear_discriminants, spread_of
from foster.networks.statistics import Statistics

NUM_FOLDS = 5
MIN_PHOTOS = 5
"""A class with fewer says too little to be judged by."""

MOST_OF_OWN = 0.1
"""A photo whose own class is more probable than this is not accused."""

LEAST_ACCURACY = 0.6
"""A classifier that is wrong more often cannot judge labels."""


@dataclass(frozen=True)
class Suspect:
    """A photo by its position, the class that it probably belongs to, and the probabilities of its own and of that."""

    position: int
    other: int
    own_probability: float
    other_probability: float


@dataclass(frozen=True)
class Judgement:
    """The photos that are probably mislabelled, the surest first, and how often the classifier agrees with labels."""

    suspects: tuple[Suspect, ...]
    accuracy: float

    @property
    def is_trusted(self) -> bool:
        return self.accuracy >= LEAST_ACCURACY


def judge(probability: Tensor, labels: Tensor) -> Judgement:
    """Of photos with out-of-sample probabilities `[N, C]` and labels `[N]`; a classifier that is often wrong accuses
    nobody."""
    accuracy = float((probability.argmax(1) == labels).double().mean())
    if accuracy < LEAST_ACCURACY:
        return Judgement((), accuracy)
    positions = _by_cleanlab(probability, labels)
    if positions is None:
        positions = confident_positions(probability, labels)
    suspects = []
    for position in positions:
        row, own = probability[position].clone(), int(labels[position])
        own_probability, row[own] = float(row[own]), -1.0
        other = int(row.argmax())
        if float(row[other]) > own_probability:
            suspects.append(Suspect(position, other, own_probability, float(row[other])))
    return Judgement(tuple(sorted(suspects, key=lambda one: one.own_probability - one.other_probability)), accuracy)


def confident_positions(probability: Tensor, labels: Tensor) -> list[int]:
    """Photos of which the likeliest class is another than their own, which is improbable, and more probable than it is
    for its own photos on average. The threshold of a class without photos is the mean of the others'."""
    counts = torch.bincount(labels, minlength=probability.shape[1])
    own = torch.zeros(probability.shape[1], dtype=probability.dtype)
    own.index_add_(0, labels, probability.gather(1, labels[:, None])[:, 0])
    thresholds = torch.where(counts > 0, own / counts.clamp_min(1), (own / counts.clamp_min(1))[counts > 0].mean())
    highest, best = probability.max(1)
    is_improbable = probability.gather(1, labels[:, None])[:, 0] <= MOST_OF_OWN
    return torch.nonzero((best != labels) & is_improbable & (highest >= thresholds[best]))[:, 0].tolist()


def _by_cleanlab(probability: Tensor, labels: Tensor) -> list[int] | None:
    """What cleanlab finds, where it is installed and every class has a photo, as it demands."""
    if len(labels.unique()) != probability.shape[1]:
        return None
    try:
        from cleanlab.filter import find_label_issues  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    issues: Any = find_label_issues(labels.numpy(), probability.numpy(), return_indices_ranked_by="self_confidence")
    return [int(position) for position in issues]


def cross_validated(features: Tensor, labels: Tensor, groups: Sequence[int]) -> Tensor:
    """Probabilities `[N, C]` of each photo by linear discriminants of the others' features `[N, d]`, labels `[N]`.

    Photos of one group, which are nearly the same, are never on both sides. The classes must be `judgeable`.
    """
    num_classes = int(labels.max()) + 1
    fold = _folds(labels, groups)
    scores = torch.empty(len(labels), num_classes, dtype=torch.float64)
    features = unit_length(features.double())
    for number in range(NUM_FOLDS):
        inside = fold == number
        if bool(inside.any()):
            others = Statistics.empty(num_classes, features.shape[1]).added(features[~inside], labels[~inside])
            weight, bias = linear_discriminants(others)
            scores[inside] = features[inside] @ weight.T + bias
    scores /= spread_of(scores) / USUAL_SPREAD or 1.0
    return probabilities(scores, fit_temperature(scores, labels) or 1.0)


def judgeable(labels: Sequence[str], groups: Sequence[int]) -> list[str]:
    """The classes with MIN_PHOTOS groups of photos of their own: copies of one photo say no more than that one."""
    classes: dict[int, set[str]] = defaultdict(set)
    for label, group in zip(labels, groups, strict=True):
        classes[group].add(label)
    counts = Counter(label for own in classes.values() if len(own) == 1 for label in own)
    return [name for name in dict.fromkeys(labels) if counts[name] >= MIN_PHOTOS]


def _folds(labels: Tensor, groups: Sequence[int]) -> Tensor:
    """Which fold each photo is in, `[N]`: of each class about as many in each, and groups together."""
    turn: dict[int, int] = {}
    fold_of: dict[int, int] = {}
    for label, group in zip(labels.tolist(), groups, strict=True):
        if group not in fold_of:
            fold_of[group] = turn.get(label, 0) % NUM_FOLDS
            turn[label] = turn.get(label, 0) + 1
    return torch.tensor([fold_of[group] for group in groups])
