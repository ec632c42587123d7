"""How good a learner is on labelled photos: class by class, and on photos of things that it never learned."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from foster.data.photos.find import some
from foster.data.photos.read import Photos, read_photos
from foster.errors import DataError
from foster.learner.calibration import expected_calibration_error
from foster.learner.classifier import Classifier
from foster.learner.familiarity import auroc
from foster.learner.knowledge import Knowledge
from foster.learner.reports import UNKNOWN, EvaluationReport, UnknownReport, class_accuracies


def assess(knowledge: Knowledge, classifier: Classifier, photos: Photos) -> EvaluationReport:
    """Accuracy on the photos of known classes; those in a folder `unknown` must be refused."""
    ids = {name: k for k, name in enumerate(knowledge.class_names)}
    unknown = {name: photos.labels.count(name) for name in photos.class_names if name not in ids}
    known = [k for k, label in enumerate(photos.labels) if label in ids]
    if not known:
        raise DataError(
            f"none of the classes in {photos.title} is known ({some(list(unknown))}); "
            f"known are {some(knowledge.class_names)}"
        )
    read = read_photos(_chosen(photos, known), knowledge.resizing, max_unreadable=len(known), num_copies=1)
    probability, features = classifier.described(read.images)
    true = torch.tensor([ids[name] for name in read.labels])
    strange = [k for k, label in enumerate(photos.labels) if label == UNKNOWN and UNKNOWN not in ids]
    refused, unreadable = None, read.unreadable
    if strange and knowledge.familiarity is not None:
        others = read_photos(_chosen(photos, strange), knowledge.resizing, max_unreadable=len(strange), num_copies=1)
        unreadable += others.unreadable
        familiar = knowledge.familiarity.scores(probability, features)
        foreign = knowledge.familiarity.scores(*classifier.described(others.images))
        threshold = knowledge.familiarity.threshold
        refused = UnknownReport(
            num_images=len(foreign),
            num_refused=int((foreign < threshold).sum()),
            num_known_refused=int((familiar < threshold).sum()),
            auroc=auroc(familiar, foreign),
        )
    return EvaluationReport(
        classes=class_accuracies(true, probability.argmax(1), knowledge.class_names),
        calibration_error=100 * expected_calibration_error(probability, true),
        unknown_classes={name: count for name, count in unknown.items() if refused is None or name != UNKNOWN},
        empty_classes=photos.empty_classes,
        passed_over=photos.passed_over,
        unreadable=unreadable,
        confusion=_confusion(true, probability.argmax(1), knowledge.class_names),
        num_trained_on=knowledge.num_trained_on(read.images),
        unknown=refused,
    )


def _chosen(photos: Photos, positions: Sequence[int]) -> Photos:
    items, labels = [photos.items[k] for k in positions], tuple(photos.labels[k] for k in positions)
    return replace(photos, items=items, labels=labels)


def _confusion(true: Tensor, predicted: Tensor, names: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = Counter(zip(true.tolist(), predicted.tolist(), strict=True))
    by_class: dict[str, dict[str, int]] = {}
    for (label, answer), count in sorted(counts.items()):
        by_class.setdefault(names[label], {})[names[answer]] = count
    return by_class
