"""What a learner answers: plain, frozen results with class names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foster.data.photos.read import Unreadable
from foster.errors import FosterError
from foster.learner.duplicates import KeptElsewhere, SharedPhotos
from foster.learner.update_check import UpdateCheck

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Candidate:
    """A class and how probable it is, from 0 to 1."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What one image shows: the best classes, or why it could not be read.

    `label` is "unknown" where `is_unknown`, and None where there is an `error`. A class may have that name, too:
    `is_unknown` tells.
    """

    name: str
    label: str | None = None
    confidence: float | None = None
    top: tuple[Candidate, ...] = ()
    is_unknown: bool = False
    error: str | None = None

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        if self.error is not None:
            return {"image": self.name, "error": self.error}
        return {
            "image": self.name,
            "label": self.label,
            "confidence": self.confidence,
            "is_unknown": self.is_unknown,
            "top": [{"label": entry.label, "probability": entry.probability} for entry in self.top],
        }


@dataclass(frozen=True)
class ClassAccuracy:
    """How many images of one class were classified rightly, and as what the others most often."""

    name: str
    num_images: int
    num_right: int
    mistaken_for: str | None

    @property
    def accuracy(self) -> float:
        return 100.0 * self.num_right / self.num_images


def class_accuracies(true: Tensor, predicted: Tensor, names: Sequence[str]) -> tuple[ClassAccuracy, ...]:
    """Of every class that has images, from true and predicted class ids `[N]`."""
    confusion = torch.zeros(len(names), len(names), dtype=torch.int64)
    confusion.index_put_((true, predicted), torch.ones_like(true), accumulate=True)
    counts = confusion.sum(1).tolist()
    right = confusion.diagonal().tolist()
    mistakes = confusion.fill_diagonal_(0)
    worst = [names[k] if count else None for count, k in zip(*(part.tolist() for part in mistakes.max(1)), strict=True)]
    return tuple(ClassAccuracy(name, counts[k], right[k], worst[k]) for k, name in enumerate(names) if counts[k])


@dataclass(frozen=True)
class EvaluationReport:
    """Accuracy on labelled images. Images of classes that the learner does not know are counted, but not in it."""

    classes: tuple[ClassAccuracy, ...]
    calibration_error: float
    """Mean distance, in points of percent, between confidence and accuracy."""
    unknown_classes: Mapping[str, int]
    empty_classes: tuple[str, ...]
    """Class folders without an image."""
    passed_over: Mapping[str, int]
    """Files that were not looked at: how many, by the ending of their names or by what they are."""
    unreadable: tuple[Unreadable, ...]

    @property
    def num_images(self) -> int:
        return sum(entry.num_images for entry in self.classes)

    @property
    def accuracy(self) -> float:
        """In percent of all images."""
        return 100.0 * sum(entry.num_right for entry in self.classes) / self.num_images

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        classes = [
            {
                "label": entry.name,
                "images": entry.num_images,
                "accuracy": entry.accuracy,
                "mistaken_for": entry.mistaken_for,
            }
            for entry in self.classes
        ]
        return {
            "accuracy": self.accuracy,
            "images": self.num_images,
            "calibration_error": self.calibration_error,
            "classes": classes,
            "unknown_classes": dict(self.unknown_classes),
            "empty_classes": list(self.empty_classes),
            "passed_over": dict(self.passed_over),
            "unreadable": [vars(entry) for entry in self.unreadable],
        }


@dataclass(frozen=True)
class LearnReport:
    """What one `learn` did."""

    new_classes: tuple[str, ...]
    more_of: Mapping[str, int]
    """Known classes that came again, with the number of images that were not known yet."""
    num_trained: int
    num_held_out: int
    num_repeated: int
    """Images that the memory already held, pixel for pixel."""
    kept_elsewhere: tuple[KeptElsewhere, ...]
    """Classes of which photos are already kept as another class, pixel for pixel."""
    shared: SharedPhotos | None
    """Photos that lie in more than one class of what was learned, where there are such."""
    empty_classes: tuple[str, ...]
    """Classes without a single readable image, which were left out."""
    passed_over: Mapping[str, int]
    """Files that were not looked at: how many, by the ending of their names or by what they are."""
    unreadable: tuple[Unreadable, ...]
    num_exemplars: int
    seconds: float
    temperature: float
    num_calibration_images: int
    variants: Mapping[str, float]
    """Accuracy of every network of the task on held-out images, as a mean over classes: boosted and compressed."""
    checks: tuple[UpdateCheck, ...]
    uncompared: tuple[str, ...]
    """Known classes of which there is no image: what they lost is not known, and no limit holds for them."""

    @property
    def held_out(self) -> UpdateCheck | None:
        """The check on images that nothing was trained on."""
        return next((check for check in self.checks if check.kind == "held-out"), None)

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {
            "new_classes": list(self.new_classes),
            "more_of": dict(self.more_of),
            "trained_images": self.num_trained,
            "held_out_images": self.num_held_out,
            "kept_elsewhere": [vars(entry) for entry in self.kept_elsewhere],
            "shared_photos": self.shared.num_photos if self.shared else 0,
            "unreadable_images": len(self.unreadable),
            "passed_over": dict(self.passed_over),
            "exemplars": self.num_exemplars,
            "seconds": round(self.seconds, 1),
            "temperature": self.temperature,
            "variants": dict(self.variants),
            "checks": {check.kind: check.record() for check in self.checks},
        }


class CalibrationWarning(UserWarning):
    """A confidence is asked for that was never compared with how often the network is right."""


class UpdateError(FosterError):
    """The known classes lost more than the user allows: what was learned is thrown away. `report` says what it was."""

    exit_code = 3

    def __init__(self, message: str, report: LearnReport) -> None:
        super().__init__(message)
        self.report = report
