"""What a learner answers: plain, frozen results with class names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foster.data.photos.read import Unreadable
from foster.errors import FosterError
from foster.learner.duplicates import KeptElsewhere, SharedPhotos
from foster.learner.mend_report import MendReport
from foster.learner.update_check import UpdateCheck
from foster.system.counts import counted

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

    @classmethod
    def of(cls, name: str, class_names: Sequence[str], row: Tensor, top: int, is_unknown: bool) -> "Prediction":
        """From the probabilities `[C]` of one image."""
        values, indices = (part.tolist() for part in row.topk(min(top, len(row))))
        best = tuple(Candidate(class_names[k], round(value, 6)) for value, k in zip(values, indices, strict=True))
        return cls(name, UNKNOWN if is_unknown else best[0].label, best[0].probability, best, is_unknown)

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        facts = {
            "image": self.name,
            "label": self.label,
            "confidence": self.confidence,
            "is_unknown": self.is_unknown,
            "top": [{"label": entry.label, "probability": entry.probability} for entry in self.top],
        }
        return facts if self.error is None else {**facts, "error": self.error}

    def __str__(self) -> str:
        answer = f"cannot be read: {self.error}" if self.error is not None else f"{self.label} {self.confidence:.1%}"
        return f"{self.name}: {answer}"


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
class UnknownReport:
    """Photos of things that were never learned: how many were refused as unknown, and how many known ones were, too."""

    num_images: int
    num_refused: int
    num_known_refused: int
    auroc: float
    """The chance that a known photo looks more familiar than one of these."""

    def record(self) -> dict[str, Any]:
        return {name.removeprefix("num_"): value for name, value in vars(self).items()}


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
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each true class, how many of its images were taken for which; zeros are left out."""
    num_trained_on: int = 0
    """How many of the images are kept in the bundle and were trained on: accuracy on them says little."""
    unknown: UnknownReport | None = None
    """Where there were photos in a folder `unknown`."""

    @property
    def num_images(self) -> int:
        return sum(entry.num_images for entry in self.classes)

    @property
    def class_accuracy(self) -> float:
        """In percent, a mean over classes."""
        return sum(entry.accuracy for entry in self.classes) / len(self.classes)

    def __str__(self) -> str:
        return f"{self.accuracy:.2f} % of {counted(self.num_images, 'image')} of {counted(len(self.classes), 'class')}"

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
            "class_accuracy": self.class_accuracy,
            "images": self.num_images,
            "images_trained_on": self.num_trained_on,
            "confusion": {name: dict(row) for name, row in self.confusion.items()},
            "calibration_error": self.calibration_error,
            "classes": classes,
            "unknown": self.unknown.record() if self.unknown else None,
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
    new_variants: Mapping[str, float]
    """The same over the new classes alone, of the networks on the way."""
    restarts: tuple[str, ...]
    """Phases that learned nothing at first and were started again, in a line each."""
    checks: tuple[UpdateCheck, ...]
    uncompared: tuple[str, ...]
    """Known classes of which there is no image: what they lost is not known, and no limit holds for them."""

    @property
    def held_out(self) -> UpdateCheck | None:
        """The check on images that nothing was trained on."""
        return next((check for check in self.checks if check.kind == "held-out"), None)

    @property
    def failed_classes(self) -> tuple[str, ...]:
        """Classes of which not one held-out image is classified rightly."""
        return (
            tuple(entry.name for entry in self.held_out.classes if not entry.num_right_after) if self.held_out else ()
        )

    @property
    def unmeasured_classes(self) -> tuple[str, ...]:
        """New classes of which no image could be held out."""
        seen = {entry.name for entry in self.held_out.classes} if self.held_out else set()
        return tuple(name for name in self.new_classes if name not in seen)

    def loss_of_new(self, limit: float) -> str | None:
        """One line where the network that was kept knows the new classes worse than the one it was made from, by more
        than `limit` points; else None."""
        after = self.held_out.new_after if self.held_out else None
        best = max(self.new_variants, key=lambda name: self.new_variants[name], default=None)
        if best is None or after is None or self.new_variants[best] - after <= limit:
            return None
        return (
            f"compression took the new classes from {self.new_variants[best]:.1f} to {after:.1f} % on held-out images, "
            f"by more than {limit:g} points; nothing was changed (longer training helps: preset, epochs_scale)"
        )

    def __str__(self) -> str:
        what = [counted(len(self.new_classes), "new class")] if self.new_classes else []
        what += [f"more of {len(self.more_of)}"] if self.more_of else []
        check = self.held_out
        accuracy = f"; {check.accuracy:.1f} % on held-out photos, mean over classes" if check and check.classes else ""
        photos = f"{counted(self.num_trained, 'photo')}, {self.num_held_out:,} held out"
        return f"learned {' and '.join(what) or 'nothing new'} from {photos}, in {self.seconds:.0f} s{accuracy}"

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
            "restarts": list(self.restarts),
            "checks": {check.kind: check.record() for check in self.checks},
        }


class CalibrationWarning(UserWarning):
    """A confidence is asked for that was never compared with how often the network is right."""


class UpdateError(FosterError):
    """More was lost than the user allows, so the learner is as it was. `report` says what was learned or mended, and
    `refused` is a Learner that knows it: look at it, save it, or go on from it."""

    exit_code = 3

    def __init__(self, message: str, report: LearnReport | MendReport, refused: Any) -> None:
        super().__init__(message)
        self.report = report
        self.refused = refused
