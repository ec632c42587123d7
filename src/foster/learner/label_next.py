"""Which photos without a label are most worth one: those that the network is unsure of and that differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foster.data.herding import unit_length
from foster.data.photos.find import shown
from foster.data.photos.read import Unreadable, decoded
from foster.errors import DataError
from foster.learner.learner import PREDICTED_AT_ONCE, Learner

LEAST_DOUBT = 0.05
"""What the surest photo still counts: where the network is sure of all, the most different ones are chosen."""


@dataclass(frozen=True)
class WorthLabelling:
    """A photo, what the network takes it for, how probable that is, and its doubt: 1 minus the lead over the next."""

    path: Path
    label: str
    confidence: float
    doubt: float

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"image": shown(self.path), "label": self.label, "confidence": self.confidence, "doubt": self.doubt}


@dataclass(frozen=True)
class NextLabels:
    """The chosen photos, those most worth a label first, and those that cannot be read."""

    chosen: tuple[WorthLabelling, ...]
    unreadable: tuple[Unreadable, ...]


def label_next(learner: Learner, files: Sequence[Path], count: int) -> NextLabels:
    """The `count` photos to label next, of any number of files, which take the same memory but for their features."""
    if count < 1:
        raise DataError(f"count must be at least 1, not {count}")
    readable: list[Path] = []
    unreadable: list[Unreadable] = []
    probabilities: list[Tensor] = []
    features: list[Tensor] = []
    found = zip(files, decoded(files, learner.resizing), strict=True)
    while chunk := list(islice(found, PREDICTED_AT_ONCE)):
        unreadable += [Unreadable(shown(file), str(image)) for file, image in chunk if not isinstance(image, Tensor)]
        pairs = [(file, image) for file, image in chunk if isinstance(image, Tensor)]
        if pairs:
            described = learner.classifier().described(torch.stack([image for _, image in pairs]))
            readable += [file for file, _ in pairs]
            probabilities.append(described[0])
            features.append(described[1])
    if not readable:
        raise DataError(f"none of the {len(files)} images can be read")
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
    """Positions of at most `count` images, given their doubt `[N]` from 0 to 1 and features `[N, d]`.

    The first is the most doubtful one. Each next has the largest product of its doubt and its distance, between
    unit-length features, to the nearest one that is already chosen: of two alike, one label serves both.
    """
    vectors = unit_length(features)
    weight = doubt + LEAST_DOUBT
    chosen = [int(weight.argmax())] if len(weight) else []
    distance = torch.full_like(weight, torch.inf)
    while 0 < len(chosen) < min(count, len(weight)):
        distance = torch.minimum(distance, (vectors - vectors[chosen[-1]]).norm(dim=1))
        score = weight * distance
        score[chosen] = -1
        chosen.append(int(score.argmax()))
    return chosen
