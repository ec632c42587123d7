"""Did an update hurt? Accuracy of each class before and after, and the images that were right and are now wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from foster.errors import SettingsError
from foster.system.counts import counted

MIN_HELD_OUT = 20
"""With fewer held-out images of all known classes together, chance would decide about an update."""


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
    None where there are no images.
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
    def num_known_images(self) -> int:
        return sum(entry.num_images for entry in self.known)

    @property
    def num_negative_flips(self) -> int:
        return sum(entry.num_negative_flips for entry in self.classes)

    @property
    def drop(self) -> float:
        """By how many points the known classes fell; below 0 where they rose, 0 where there is nothing to compare."""
        before, after = self.known_before, self.known_after
        return before - after if before is not None and after is not None else 0.0

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {
            "images": sum(entry.num_images for entry in self.classes),
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
    """The check that decides about an update, over the known classes; None where no known class has an image.

    A class is judged by its held-out images, or by its exemplars where it has none. With fewer than MIN_HELD_OUT
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


def check_limits(max_drop: float | None, minutes: float | None) -> None:
    """Refuse limits of a learn that are no numbers, before anything is read."""
    if max_drop is not None and (not isinstance(max_drop, int | float) or math.isnan(max_drop)):
        raise SettingsError(f"max_drop: this is a number of points, not {max_drop!r}")
    if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
        raise SettingsError(f"minutes: this is a number above 0, not {minutes!r}")


def problem(checks: Sequence[UpdateCheck], max_drop: float) -> str | None:
    """One line that says by how much the known classes fell where that is more than `max_drop` points, else None."""
    check = deciding(checks)
    if check is None or check.drop <= max_drop:
        return None
    worst = min(check.known, key=lambda entry: entry.after - (entry.before or 0.0))
    return (
        f"the known classes fell from {check.known_before:.1f} to {check.known_after:.1f} % "
        f"on {counted(check.num_known_images, f'{check.kind} image')}, by more than {max_drop:g} points; "
        f"nothing was changed (worst: '{worst.name}', {worst.before:.0f} to {worst.after:.0f} %)"
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
