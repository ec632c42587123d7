"""The accuracy of a learner on labelled photos, by class, and how it treats photos of things that it never learned."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foster import events
from foster.data.photos.decode import decoded, image_id
from foster.data.photos.find import Photos, Unreadable
from foster.data.photos.store import none_readable
from foster.errors import DataError
from foster.learner.calibration import expected_calibration_error
from foster.learner.classifier import Classifier
from foster.learner.knowledge import Knowledge
from foster.learner.prediction import UNKNOWN
from foster.system.counts import counted
from foster.system.output import listed


@dataclass(frozen=True)
class ClassAccuracy:
    """How many images of one class were right, and the most frequent answer for the others."""

    name: str
    num_images: int
    num_right: int
    mistaken_for: str | None

    @classmethod
    def of(cls, name: str, answers: Mapping[str, int]) -> "ClassAccuracy":
        """From the number of images of a class by answer."""
        others = {answer: count for answer, count in answers.items() if answer != name}
        mistaken_for = max(others, key=lambda answer: others[answer], default=None)
        return cls(name, sum(answers.values()), answers.get(name, 0), mistaken_for)

    @property
    def accuracy(self) -> float:
        return 100.0 * self.num_right / self.num_images

    def record(self) -> dict[str, Any]:
        facts = {"label": self.name, "images": self.num_images}
        return {**facts, "accuracy": self.accuracy, "mistaken_for": self.mistaken_for}


@dataclass(frozen=True)
class UnknownReport:
    """How many photos of things that were never learned were refused as unknown, and how many photos of known
    classes."""

    num_images: int
    num_refused: int
    num_known_refused: int

    def record(self) -> dict[str, Any]:
        return {name.removeprefix("num_"): value for name, value in vars(self).items()}


@dataclass(frozen=True)
class EvaluationReport:
    """Accuracy on labelled images. Images of classes that the learner does not know are counted separately."""

    confusion: Mapping[str, Mapping[str, int]]
    """For each true class that has images, the number of its images by predicted class; zeros are left out."""
    calibration_error: float
    """Mean distance, in points of percent, between confidence and accuracy."""
    unknown_classes: Mapping[str, int]
    empty_classes: tuple[str, ...]
    """Class folders without an image."""
    passed_over: Mapping[str, int]
    """How many files were skipped, by the ending of their names or by their kind."""
    unreadable: tuple[Unreadable, ...]
    num_trained_on: int
    """How many of the images were learned from; the accuracy on these is too high."""
    unknown: UnknownReport | None
    """None if there is no folder `unknown`."""

    @property
    def classes(self) -> tuple[ClassAccuracy, ...]:
        """Of each class its `name`, `accuracy` in percent, `num_images`, `num_right` and `mistaken_for`."""
        return tuple(ClassAccuracy.of(name, answers) for name, answers in self.confusion.items())

    @property
    def num_images(self) -> int:
        return sum(entry.num_images for entry in self.classes)

    @property
    def num_right(self) -> int:
        return sum(entry.num_right for entry in self.classes)

    @property
    def class_accuracy(self) -> float:
        """In percent, a mean over classes."""
        return sum(entry.accuracy for entry in self.classes) / len(self.classes)

    def __str__(self) -> str:
        return f"{self.accuracy:.2f} % of {counted(self.num_images, 'image')} of {counted(len(self.classes), 'class')}"

    @property
    def accuracy(self) -> float:
        """In percent of all images."""
        return 100.0 * self.num_right / self.num_images

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "accuracy": self.accuracy,
            "class_accuracy": self.class_accuracy,
            "images": self.num_images,
            "images_trained_on": self.num_trained_on,
            "confusion": {name: dict(row) for name, row in self.confusion.items()},
            "calibration_error": self.calibration_error,
            "classes": [entry.record() for entry in self.classes],
            "unknown": self.unknown.record() if self.unknown else None,
            "unknown_classes": dict(self.unknown_classes),
            "empty_classes": list(self.empty_classes),
            "passed_over": dict(self.passed_over),
            "unreadable": [vars(entry) for entry in self.unreadable],
        }


def assess(knowledge: Knowledge, classifier: Classifier, photos: Photos, listener: events.Listener) -> EvaluationReport:
    """Accuracy on the photos of known classes; those in a folder `unknown` should be refused. The listener gets the
    progress."""
    ids = {name: k for k, name in enumerate(knowledge.class_names)}
    unknown = {name: photos.labels.count(name) for name in photos.class_names if name not in ids}
    if len(unknown) == len(photos.class_names):
        hint = "; a folder 'unknown' needs known classes beside it (alone: 'foster predict --unknown auto')"
        raise DataError(
            f"none of the classes in {photos.title} is known ({listed(list(unknown))}); "
            f"known are {listed(knowledge.class_names)}{hint if UNKNOWN in unknown else ''}"
        )
    familiarity = knowledge.familiarity
    wanted = {*ids, UNKNOWN} if familiarity is not None else {*ids}
    chosen = [k for k, label in enumerate(photos.labels) if label in wanted]
    learned = knowledge.learned_ids()
    unreadable: list[Unreadable] = []
    true: list[int] = []
    probability: list[Tensor] = []
    scores: list[Tensor] = []
    num_trained_on = 0
    for batch in decoded([photos.items[k] for k in chosen], knowledge.resizing):
        unreadable += photos.unreadable({chosen[k]: reason for k, reason in batch.unreadable.items()})
        for position, image in batch.results.items():
            true.append(ids.get(photos.labels[chosen[position]], -1))
            num_trained_on += image_id(image) in learned
        if batch.results:
            described = classifier.described(torch.stack(list(batch.results.values())))
            probability.append(described[0])
            if familiarity is not None:
                scores.append(familiarity.scores(*described))
        listener(events.Decoding(photos.title.strip("'"), batch.num_done, len(chosen)))
    labels = torch.tensor(true)
    is_known = labels >= 0
    if not bool(is_known.any()):
        raise none_readable(unreadable, photos.title)
    found = torch.cat(probability)[is_known]
    refused = None
    if familiarity is not None and not bool(is_known.all()):
        familiar, foreign = torch.cat(scores)[is_known], torch.cat(scores)[~is_known]
        refused = UnknownReport(
            num_images=len(foreign),
            num_refused=int((foreign < familiarity.threshold).sum()),
            num_known_refused=int((familiar < familiarity.threshold).sum()),
        )
    return EvaluationReport(
        confusion=_confusion(labels[is_known], found.argmax(1), knowledge.class_names),
        calibration_error=100 * expected_calibration_error(found, labels[is_known]),
        unknown_classes={name: count for name, count in unknown.items() if refused is None or name != UNKNOWN},
        empty_classes=photos.empty_classes,
        passed_over=photos.passed_over,
        unreadable=tuple(unreadable),
        num_trained_on=num_trained_on,
        unknown=refused,
    )


def _confusion(true: Tensor, predicted: Tensor, names: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = Counter(zip(true.tolist(), predicted.tolist(), strict=True))
    by_class: dict[str, dict[str, int]] = {}
    for (label, answer), count in sorted(counts.items()):
        by_class.setdefault(names[label], {})[names[answer]] = count
    return by_class
