"""The entries of a bundle's history. Known fields are checked when a bundle is read; entries are kept unchanged."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from foster.system.counts import counted
from foster.system.documents import Count, Document, Percent, Seconds, Share, first_problem
from foster.system.output import listed

FORGOTTEN = "a forgotten class"
"""Replaces the name of a forgotten class."""


class _ClassRow(Document):
    images: Count
    before: Percent | None
    after: Percent | None
    negative_flips: Count


class _Check(Document):
    known_before: Percent | None = None
    known_after: Percent | None = None
    new_after: Percent | None = None
    negative_flips: Count = 0
    classes: dict[str, _ClassRow] = Field(default_factory=dict)


class _Entry(Document):
    """One `learn`, a change of classes, or a removal of photos.

    Class names are those of that time, except for classes that were renamed or forgotten later.
    """

    when: str = ""
    source: str = ""
    new_classes: tuple[str, ...] = ()
    more_of: dict[str, Count] = Field(default_factory=dict)
    held_out_share: Share = 0.0
    trained_images: Count = 0
    seconds: Seconds = 0.0
    checks: dict[Literal["held-out", "exemplar"], _Check] = Field(default_factory=dict)
    removed_photos: Count = 0
    renamed: dict[str, str] = Field(default_factory=dict)
    """The new name of each renamed class, by its old name; classes that were merged have the same new name."""
    forgotten: tuple[str, ...] = ()


def checked_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry itself; ValueError if a known field is not valid."""
    try:
        _Entry.model_validate(entry)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    return entry


def entry_title(entry: Mapping[str, Any]) -> str:
    """What was learned or changed, for lists of the history."""
    renamed = entry.get("renamed", {})
    if renamed:
        names, (into, *_) = list(renamed), renamed.values()
        if names == [into]:
            return f"renamed a class to {into}"
        return f"renamed {names[0]} to {into}" if len(names) == 1 else f"merged {listed(names, 4)} into {into}"
    if entry.get("removed_photos"):
        return f"removed {counted(entry['removed_photos'], 'photo')}"
    forgotten = entry.get("forgotten", ())
    if set(forgotten) == {FORGOTTEN}:
        return f"forgot {counted(len(forgotten), 'class')}"
    return f"forgot {listed(forgotten, 4)}" if forgotten else str(entry.get("source", ""))


def is_learn(entry: Mapping[str, Any]) -> bool:
    """Whether it is a `learn`, and not a change of classes or a removal of photos."""
    return not any(entry.get(key) for key in ("renamed", "forgotten", "removed_photos"))


def last_checks(history: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The checks of the last entry that has some: by kind of images, then by class."""
    checks: Mapping[str, Any] = next((entry["checks"] for entry in reversed(history) if "checks" in entry), {})
    return {kind: check.get("classes", {}) for kind, check in checks.items()}
