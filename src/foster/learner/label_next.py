"""Which unlabelled photos to label next: those that the network is unsure of and that differ from each other."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foster import events
from foster.data.herding import unit_length
from foster.data.photos.decode import decoded
from foster.data.photos.find import GIVEN, Unreadable, shown
from foster.data.photos.store import none_readable
from foster.learner.learner import Learner

MOST_CLUSTERED = 20_000
"""If there are more photos, only the most doubtful are clustered, to save time."""

LEAST_DOUBT = 0.05
"""Added to the weight of every photo."""


@dataclass(frozen=True)
class WorthLabelling:
    """A photo with its predicted label and confidence. Doubt is 1 minus the margin over the next class."""

    path: Path
    label: str
    confidence: float
    doubt: float

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"image": shown(self.path), "label": self.label, "confidence": self.confidence, "doubt": self.doubt}


@dataclass(frozen=True)
class NextLabels:
    """The chosen photos, the most doubtful first, and those that cannot be read."""

    chosen: tuple[WorthLabelling, ...]
    unreadable: tuple[Unreadable, ...]


def label_next(
    learner: Learner, files: Sequence[Path], count: int, listener: events.Listener = events.ignore
) -> NextLabels:
    """The `count` photos to label next. Only the features and probabilities of all files are kept in memory."""
    readable: list[Path] = []
    unreadable: list[Unreadable] = []
    probabilities: list[Tensor] = []
    features: list[Tensor] = []
    for batch in decoded(files, learner.known.resizing):
        unreadable += [Unreadable(shown(files[k]), reason) for k, reason in batch.unreadable.items()]
        readable += [files[k] for k in batch.results]
        if batch.results:
            described = learner.classifier().described(torch.stack(list(batch.results.values())))
            probabilities.append(described[0])
            features.append(described[1])
        listener(events.Decoding("photos", batch.num_done, len(files)))
    if not readable:
        raise none_readable(unreadable, GIVEN)
    probability = torch.cat(probabilities)
    best = probability.topk(min(2, probability.shape[1]), dim=1)
    doubt = 1 - best.values[:, 0] + (best.values[:, 1] if best.values.shape[1] > 1 else 0)
    chosen = doubtful_and_different(doubt, torch.cat(features), count)
    rows = zip(chosen, best.indices[chosen, 0].tolist(), best.values[chosen, 0].tolist(), strict=True)
    return NextLabels(
        tuple(
            WorthLabelling(readable[k], learner.class_names[label], round(confidence, 6), round(float(doubt[k]), 6))
            for k, label, confidence in rows
        ),
        tuple(unreadable),
    )


def doubtful_and_different(doubt: Tensor, features: Tensor, count: int) -> list[int]:
    """Positions of `count` images or all, the most doubtful first, given doubt `[N]` from 0 to 1 and features `[N, d]`.

    The unit-length features are divided into `count` clusters by k-means, in which doubtful images have larger weights.
    The image nearest to each centre is taken (after Zhdanov, Diverse mini-batch active learning, 2019), so that similar
    images are labelled once and outliers are not chosen.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    ranked = doubt.argsort(descending=True, stable=True)
    candidates = ranked[: max(count, MOST_CLUSTERED)]
    if len(candidates) <= count:
        return candidates.tolist()
    vectors = unit_length(features[candidates]).double().numpy()
    weight = (doubt[candidates] + LEAST_DOUBT).double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters
        middles = KMeans(count, n_init=1, random_state=0).fit(vectors, sample_weight=weight)
    distance = middles.transform(vectors).min(1)
    nearest = [
        min(np.flatnonzero(middles.labels_ == k), key=lambda candidate: distance[candidate])
        for k in set(middles.labels_)
    ]
    others = [candidate for candidate in range(len(candidates)) if candidate not in set(nearest)]
    return candidates[sorted((nearest + others)[:count])].tolist()
