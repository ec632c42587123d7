"""Labels that are probably wrong, by discriminants of the other photos."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from foster.learner.calibration import USUAL_SPREAD, fit_temperature, probabilities, spread_of
from foster.learner.plan import classes_of
from foster.networks.statistics import Statistics, discriminants_of_few, left_out_scores

MIN_PHOTOS = 5
"""A class with fewer photos is not judged."""

MOST_OF_CHANCE = 0.6
"""A label is suspect if its probability is at most this share of 1 / C, for C classes (results/notes)."""


def judgeable(labels: Sequence[str], groups: Sequence[int]) -> list[str]:
    """The classes with at least MIN_PHOTOS groups of photos. Copies of one photo are one group and count once."""
    classes = classes_of(zip(labels, groups, strict=True)).values()
    counts = Counter(label for names in classes if len(names) == 1 for label in names)
    return [name for name in dict.fromkeys(labels) if counts[name] >= MIN_PHOTOS]


def left_out_probabilities(features: Tensor, labels: Tensor, groups: Sequence[int]) -> Tensor:
    """Probabilities `[N, C]` of each photo by discriminants of the others' features `[N, d]`, labels `[N]`.

    Photos of one group are nearly the same. Of a group in one class the first photo counts; a group in several classes
    does not count. The classes must be `judgeable`. Suspects of a first round do not count in the second: several of
    them in one class would support each other.
    """
    features, classes = features.double(), classes_of(zip(labels.tolist(), groups, strict=True))
    first: dict[int, int] = {}
    is_first = [first.setdefault(group, position) == position for position, group in enumerate(groups)]
    counts = torch.tensor(is_first) & torch.tensor([len(classes[group]) == 1 for group in groups])
    found = _probabilities(features, labels, counts)
    return _probabilities(features, labels, counts & ~are_suspect(found, labels))


def _probabilities(features: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Probabilities `[N, C]` by discriminants of the photos with `counts` `[N]`, each of which is left out when it is
    judged itself."""
    num_classes = int(labels.max()) + 1
    known = Statistics.empty(num_classes, features.shape[1]).added(features[counts], labels[counts])
    weight, bias = discriminants_of_few(known)
    scores = features @ weight.T + bias
    scores[counts], is_judged = left_out_scores(known, features[counts], labels[counts])
    left_out = scores[counts][is_judged]
    scale = (spread_of(left_out) if len(left_out) else 0.0) / USUAL_SPREAD or 1.0
    temperature = fit_temperature(left_out / scale, labels[counts][is_judged])
    return probabilities(scores / scale, temperature or 1.0)


def are_suspect(probability: Tensor, labels: Tensor) -> Tensor:
    """Which labels `[N]` are far less probable than chance, by probabilities `[N, C]` of a classifier that did not
    learn from these photos."""
    return probability.gather(1, labels[:, None])[:, 0] <= MOST_OF_CHANCE / probability.shape[1]
