"""Photos that are probably in the wrong class, by probabilities of a classifier that did not learn from them.

Confident learning (Northcutt, Jiang, Chuang: "Confident learning", 2021): a photo that another class claims more surely
than it claims its own photos on average is probably one of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foster.learner.calibration import USUAL_SPREAD, fit_temperature, probabilities
from foster.learner.heads import SHRINKAGE
from foster.networks.statistics import Statistics, discriminants_of_few, left_out_scores

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
    """Of photos with probabilities `[N, C]` and labels `[N]`; a classifier that is often wrong accuses nobody."""
    accuracy = float((probability.argmax(1) == labels).double().mean())
    if accuracy < LEAST_ACCURACY:
        return Judgement((), accuracy)
    suspects = [
        Suspect(
            position,
            int(probability[position].argmax()),
            float(probability[position, labels[position]]),
            float(probability[position].max()),
        )
        for position in are_suspect(probability, labels).nonzero()[:, 0].tolist()
    ]
    return Judgement(tuple(sorted(suspects, key=lambda one: one.own_probability - one.other_probability)), accuracy)


def are_suspect(probability: Tensor, labels: Tensor) -> Tensor:
    """Of which photos, `[N]`, the likeliest class is another than their own, which is improbable, and more probable
    than it is for its own photos on average. The threshold of a class without photos is the mean of the others'."""
    counts = torch.bincount(labels, minlength=probability.shape[1])
    own_probability = probability.gather(1, labels[:, None])[:, 0]
    sums = torch.zeros(probability.shape[1], dtype=probability.dtype).index_add_(0, labels, own_probability)
    means = sums / counts.clamp_min(1)
    thresholds = torch.where(counts > 0, means, means[counts > 0].mean())
    highest, best = probability.max(1)
    return (best != labels) & (own_probability <= MOST_OF_OWN) & (highest >= thresholds[best])


def left_out_probabilities(features: Tensor, labels: Tensor, groups: Sequence[int]) -> Tensor:
    """Probabilities `[N, C]` of each photo by discriminants of the others' features `[N, d]`, labels `[N]`.

    Photos of one group are nearly the same: of those in one class the first counts, and those in several classes do
    not, so that none vouches for another. The classes must be `judgeable`. Suspects of a first round do not count in
    the second: several of them in one class would vouch for each other.
    """
    features = features.double()
    first: dict[int, int] = {}
    classes: dict[int, set[int]] = defaultdict(set)
    for position, (group, label) in enumerate(zip(groups, labels.tolist(), strict=True)):
        first.setdefault(group, position)
        classes[group].add(label)
    teacher = torch.tensor([first[group] if len(classes[group]) == 1 else -1 for group in groups])
    counts = teacher == torch.arange(len(labels))
    found = _probabilities(features, labels, teacher, counts)
    remaining = counts & ~are_suspect(found, labels)
    least = torch.bincount(labels[remaining], minlength=found.shape[1]).min()
    if int(least) < 2 or torch.equal(remaining, counts):
        return found
    return _probabilities(features, labels, teacher, remaining)


def _probabilities(features: Tensor, labels: Tensor, teacher: Tensor, counts: Tensor) -> Tensor:
    """By discriminants of the photos where `counts` `[N]`, each left out of its own; what is said of a photo is said of
    those whose `teacher` `[N]` it is."""
    num_classes = int(labels.max()) + 1
    known = Statistics.empty(num_classes, features.shape[1]).added(features[counts], labels[counts])
    weight, bias = discriminants_of_few(known, SHRINKAGE)
    scores = features @ weight.T + bias
    scores[counts], is_judged = left_out_scores(known, SHRINKAGE, features[counts], labels[counts])
    has_teacher = teacher >= 0
    scores[has_teacher] = scores[teacher[has_teacher]]
    honest = scores[counts][is_judged]
    spread = float((honest - honest.mean(1, keepdim=True)).std()) if len(honest) > 1 else 0.0
    unit = spread / USUAL_SPREAD or 1.0
    temperature = fit_temperature(honest / unit, labels[counts][is_judged])
    return probabilities(scores / unit, temperature or 1.0)


def judgeable(labels: Sequence[str], groups: Sequence[int]) -> list[str]:
    """The classes with MIN_PHOTOS groups of photos of their own: copies of one photo say no more than that one."""
    classes: dict[int, set[str]] = defaultdict(set)
    for label, group in zip(labels, groups, strict=True):
        classes[group].add(label)
    counts = Counter(label for own in classes.values() if len(own) == 1 for label in own)
    return [name for name in dict.fromkeys(labels) if counts[name] >= MIN_PHOTOS]
