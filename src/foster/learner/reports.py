"""The reports of a learner: accuracy before and after an update, a `learn`, and changes of classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from foster.bundle.history import entry_title
from foster.data.photos.find import Unreadable
from foster.errors import FosterError
from foster.system.counts import counted

MIN_HELD_OUT = 20
"""With fewer held-out images of all known classes together, chance would decide about an update."""

USUAL_DROP = 10.0
"""Known classes usually lose fewer points than this to new ones."""

CLOSED_FORM_VARIANT = "closed form"
"""The name of the closed form among the variants of a trained network."""

NORMAL_95 = 1.96


def wilson_interval(num_right: int, num_images: int) -> tuple[float, float]:
    """The 95 % interval (Wilson) of an accuracy, in percent."""
    if not num_images:
        return 0.0, 100.0
    share, z2 = num_right / num_images, NORMAL_95**2 / num_images
    middle, half = share + z2 / 2, NORMAL_95 * math.sqrt(share * (1 - share) / num_images + z2 / num_images / 4)
    low, high = (middle - half) / (1 + z2), (middle + half) / (1 + z2)
    return 100 * max(0.0, low), 100 * min(1.0, high)


@dataclass(frozen=True)
class ClassChange:
    """One class: how many images it has, how many were right before and after, and how many became wrong.

    `num_right_before` is None for a new class.
    """

    name: str
    num_images: int
    num_right_before: int | None
    num_right_after: int
    num_negative_flips: int

    @property
    def before(self) -> float | None:
        return None if self.num_right_before is None else 100.0 * self.num_right_before / self.num_images

    @property
    def after(self) -> float:
        return 100.0 * self.num_right_after / self.num_images

    def __add__(self, other: "ClassChange") -> "ClassChange":
        """All images of a known class together."""
        return ClassChange(
            self.name,
            self.num_images + other.num_images,
            (self.num_right_before or 0) + (other.num_right_before or 0),
            self.num_right_after + other.num_right_after,
            self.num_negative_flips + other.num_negative_flips,
        )

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {
            "images": self.num_images,
            "before": self.before,
            "after": self.after,
            "negative_flips": self.num_negative_flips,
        }


@dataclass(frozen=True)
class UpdateCheck:
    """The classes one by one, on one set of images. `kind` says which: "held-out" or "exemplar".

    Accuracies are means over classes, in percent: a class with many images counts no more than one with few. They are
    None if there are no images.
    """

    kind: str
    classes: tuple[ClassChange, ...]

    @property
    def known(self) -> tuple[ClassChange, ...]:
        return tuple(entry for entry in self.classes if entry.num_right_before is not None)

    @property
    def new(self) -> tuple[ClassChange, ...]:
        return tuple(entry for entry in self.classes if entry.num_right_before is None)

    @property
    def accuracy(self) -> float | None:
        return _mean([entry.after for entry in self.classes])

    @property
    def known_before(self) -> float | None:
        return _mean([entry.before for entry in self.known if entry.before is not None])

    @property
    def known_after(self) -> float | None:
        return _mean([entry.after for entry in self.known])

    @property
    def new_after(self) -> float | None:
        return _mean([entry.after for entry in self.new])

    @property
    def num_images(self) -> int:
        return sum(entry.num_images for entry in self.classes)

    @property
    def num_right(self) -> int:
        """How many images are right after the update."""
        return sum(entry.num_right_after for entry in self.classes)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval (Wilson) of the share of images that are right, in percent."""
        return wilson_interval(self.num_right, self.num_images)

    @property
    def num_known_images(self) -> int:
        return sum(entry.num_images for entry in self.known)

    @property
    def num_negative_flips(self) -> int:
        return sum(entry.num_negative_flips for entry in self.classes)

    @property
    def drop(self) -> float:
        """By how many points the known classes fell; below 0 if they rose, 0 if there is nothing to compare."""
        before, after = self.known_before, self.known_after
        return before - after if before is not None and after is not None else 0.0

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {
            "images": self.num_images,
            "accuracy": self.accuracy,
            "known_before": self.known_before,
            "known_after": self.known_after,
            "new_after": self.new_after,
            "negative_flips": self.num_negative_flips,
            "classes": {entry.name: entry.record() for entry in self.classes},
        }


def compare(
    kind: str, labels: ArrayLike, before: ArrayLike | None, after: ArrayLike, class_names: Sequence[str], num_known: int
) -> UpdateCheck:
    """Class by class from labels and predictions, all `[N]`; `before` counts for labels below `num_known` alone.

    Classes without an image are left out.
    """
    label = np.asarray(labels)
    is_right = np.asarray(after) == label
    was_right = np.zeros_like(is_right) if before is None else np.asarray(before) == label
    changes = []
    for class_id in np.unique(label).tolist():
        is_known, then, now = class_id < num_known, was_right[label == class_id], is_right[label == class_id]
        num_right_before = int(then.sum()) if is_known else None
        num_flips = int((then & ~now).sum()) if is_known else 0
        changes.append(ClassChange(class_names[class_id], len(now), num_right_before, int(now.sum()), num_flips))
    return UpdateCheck(kind, tuple(changes))


def deciding(checks: Sequence[UpdateCheck]) -> UpdateCheck | None:
    """The check that decides about an update, over the known classes; None if no known class has an image.

    A class is judged by its held-out images, or by its exemplars if it has none. With fewer than MIN_HELD_OUT
    held-out images in all, exemplars count for every class.
    """
    entries_of = {check.kind: check.known for check in checks if check.known}
    held_out = entries_of.get("held-out", ())
    if sum(entry.num_images for entry in held_out) >= MIN_HELD_OUT:
        seen = {entry.name for entry in held_out}
        others = tuple(entry for entry in entries_of.get("exemplar", ()) if entry.name not in seen)
        entries_of = {"held-out": held_out, **({"exemplar": others} if others else {})}
    merged: dict[str, ClassChange] = {}
    for entry in chain.from_iterable(entries_of.values()):
        merged[entry.name] = merged[entry.name] + entry if entry.name in merged else entry
    return UpdateCheck(" and ".join(entries_of), tuple(merged.values())) if merged else None


def problem(checks: Sequence[UpdateCheck], max_drop: float) -> str | None:
    """One line about the drop of the known classes if it is more than `max_drop` points, else None."""
    check = deciding(checks)
    if check is None or check.drop <= max_drop:
        return None
    worst = min(check.known, key=lambda entry: entry.after - (entry.before or 0.0))
    points = "1 point" if max_drop == 1 else f"{max_drop:g} points"
    return (
        f"the known classes fell from {_before_and_after(check)}, by more than {points}; "
        f"nothing was changed (worst: '{worst.name}', {worst.before:.0f} to {worst.after:.0f} %)"
    )


def large_loss(checks: Sequence[UpdateCheck]) -> str | None:
    """A text about the loss of the known classes, if it is more than USUAL_DROP points and more than chance, else None.

    It is more than chance if, of the images that were right either before or after, clearly more than half became
    wrong: a sign test by the Wilson interval.
    """
    check = deciding(checks)
    if check is None or check.drop <= USUAL_DROP:
        return None
    num_lost = check.num_negative_flips
    num_won = num_lost + sum(entry.num_right_after - (entry.num_right_before or 0) for entry in check.known)
    if wilson_interval(num_lost, num_lost + num_won)[0] <= 50:
        return None
    return f"the known classes lost {check.drop:.1f} points ({_before_and_after(check)})"


def _before_and_after(check: UpdateCheck) -> str:
    """The accuracy of the known classes: `90.0 to 80.0 % on 50 unseen images`."""
    images = counted(check.num_known_images, f"{check.kind.replace('held-out', 'unseen')} image")
    return f"{check.known_before:.1f} to {check.known_after:.1f} % on {images}"


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


@dataclass(frozen=True)
class SharedPhotos:
    """How many photos of a source are in more than one class, there or in the bundle, and one of them."""

    num_photos: int
    example: str
    class_names: tuple[str, ...]
    """The classes of the example."""


@dataclass(frozen=True)
class LearnReport:
    """What one `learn` found in its source, what it did, and the accuracy."""

    more_of: Mapping[str, int]
    """Known classes that the source has, each with the number of its images that were not known yet."""
    num_repeated: int
    """Images that were known already, pixel for pixel."""
    shared: SharedPhotos | None
    """Photos of the source that are in more than one class, pixel for pixel."""
    empty_classes: tuple[str, ...]
    """Classes without a single readable image, which were left out."""
    passed_over: Mapping[str, int]
    """How many files were skipped, by the ending of their names or by their kind."""
    unreadable: tuple[Unreadable, ...]
    new_classes: tuple[str, ...]
    similar_names: tuple[tuple[str, ...], ...] = ()
    """New classes whose names differ only in case or in how words are joined from those of other classes."""
    num_trained: int = 0
    num_held_out: int = 0
    num_exemplars: int = 0
    """How many images were learned, were held out, and are kept to be learned from again."""
    seconds: float = 0.0
    temperature: float = 1.0
    checks: tuple[UpdateCheck, ...] = ()
    uncompared: tuple[str, ...] = ()
    """Known classes without an image: their loss is not known, and `max_drop` does not apply to them."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """The epochs of every phase of a training."""
    variants: Mapping[str, float] = field(default_factory=dict)
    """Accuracy on held-out images, as a mean over classes: of every variant of a training, and of the closed form."""
    result: str = ""
    """The variant that is the result of a training."""

    @property
    def held_out(self) -> UpdateCheck | None:
        """The check on images that were never trained on."""
        return next((check for check in self.checks if check.kind == "held-out"), None)

    @property
    def is_closed_form(self) -> bool:
        """Whether nothing was trained."""
        return not self.result

    @property
    def is_better_in_closed_form(self) -> bool:
        """Whether the head in closed form is better than the network that was trained."""
        return self.variants.get(CLOSED_FORM_VARIANT, 0.0) > self.variants.get(self.result, 100.0)

    @property
    def unmeasured_classes(self) -> tuple[str, ...]:
        """New classes of which no image could be held out."""
        measured = {entry.name for entry in self.held_out.classes} if self.held_out else set()
        return tuple(name for name in self.new_classes if name not in measured)

    def __str__(self) -> str:
        what = [counted(len(self.new_classes), "new class")] if self.new_classes else []
        what += [f"more of {len(self.more_of)}"] if self.more_of else []
        accuracy = ""
        if self.held_out:
            low, high = self.held_out.interval
            unseen = counted(self.held_out.num_images, "photo")
            measured = f"{self.held_out.num_right:,} of {unseen} that it had not seen are right"
            accuracy = f"; {measured} ({low:.0f} to {high:.0f} %)"
        held_out = f", {self.num_held_out:,} held out" if self.num_held_out else ""
        photos = f"{counted(self.num_trained, 'photo')}{held_out}"
        return f"learned {' and '.join(what) or 'nothing new'} from {photos}, in {self.seconds:.0f} s{accuracy}"

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {
            "new_classes": list(self.new_classes),
            "more_of": dict(self.more_of),
            "trained_images": self.num_trained,
            "held_out_images": self.num_held_out,
            "shared_photos": self.shared.num_photos if self.shared else 0,
            "unreadable_images": len(self.unreadable),
            "passed_over": dict(self.passed_over),
            "exemplars": self.num_exemplars,
            "seconds": self.seconds,
            "temperature": self.temperature,
            "variants": dict(self.variants),
            **({"epochs": dict(self.epochs)} if self.epochs else {}),
            "checks": {check.kind: check.record() for check in self.checks},
        }


@dataclass(frozen=True)
class MendReport:
    """Which classes were renamed, merged or forgotten, and how accuracy changed."""

    renamed: Mapping[str, str]
    """The new name by the old name; merged classes have the same new name."""
    forgotten: tuple[str, ...] = ()
    checks: tuple[UpdateCheck, ...] = ()
    """Accuracy before and after, if answers may have changed. Before a merge, its classes count as one."""
    is_trained: bool = False
    """Whether the backbone, which stays as it is, was trained on the classes."""
    removed: tuple[str, ...] = ()
    """The ids of photos that were removed."""
    is_estimated: bool = False
    """Whether the part of forgotten classes in the common sums was estimated: not all their features were kept."""

    def __str__(self) -> str:
        return entry_title(self.record())

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        if self.removed:
            return {"removed_photos": len(self.removed)}
        if not self.forgotten and not self.checks:
            return {"renamed": dict(self.renamed)}
        return {
            **({"forgotten": list(self.forgotten)} if self.forgotten else {"renamed": dict(self.renamed)}),
            "checks": {check.kind: check.record() for check in self.checks},
        }


class UpdateError(FosterError):
    """The known classes lost more than `max_drop`, so the learner is unchanged. `report` is the LearnReport, and
    `refused` is a Learner with the result: evaluate it, save it, or continue from it."""

    exit_code = 3

    def __init__(self, message: str, report: LearnReport, refused: Any) -> None:
        super().__init__(message)
        self.report = report
        self.refused = refused
