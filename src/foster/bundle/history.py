"""The entries of a bundle's history. Known fields are checked when a bundle is read; entries are kept
unchanged, but for the names of classes that are renamed or forgotten."""

import re
from collections.abc import Collection, Mapping, Sequence
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


def without_names(
    history: Sequence[Mapping[str, Any]], names: Collection[str], class_names: Collection[str]
) -> tuple[dict[str, Any], ...]:
    """A history without these forgotten names and earlier names of the same classes, but for present `class_names`."""
    gone = set(names)
    for entry in reversed(history):
        gone |= {old for old, new in entry.get("renamed", {}).items() if new in gone}
    return with_names(history, dict.fromkeys(gone - set(class_names)))


def with_names(history: Sequence[Mapping[str, Any]], names: Mapping[str, str | None]) -> tuple[dict[str, Any], ...]:
    """A history with changed class names, without the facts of a class whose name becomes None."""
    return tuple(_entry_with_names(entry, names) for entry in history)


def _entry_with_names(entry: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    def of_keys(table: Mapping[str, Any]) -> dict[str, Any]:
        return {new: value for key, value in table.items() if (new := names.get(key, key)) is not None}

    result = dict(entry)
    if "new_classes" in entry:
        result["new_classes"] = [new for name in entry["new_classes"] if (new := names.get(name, name)) is not None]
    if "more_of" in entry:
        result["more_of"] = of_keys(entry["more_of"])
    if "checks" in entry:
        result["checks"] = {
            kind: {**check, "classes": of_keys(check.get("classes", {}))} for kind, check in entry["checks"].items()
        }
    if "renamed" in entry:
        changed = of_keys(entry["renamed"])
        result["renamed"] = {old: new for old, name in changed.items() if (new := names.get(name, name)) is not None}
    if "forgotten" in entry:
        result["forgotten"] = [names.get(name, name) or FORGOTTEN for name in entry["forgotten"]]
    if "source" in entry:
        result["source"] = _source_with_names(str(entry["source"]), names)
    return result


def _source_with_names(source: str, names: Mapping[str, str | None]) -> str:
    """The name of a folder with class names changed; FORGOTTEN if it contains the name of a forgotten class."""
    for old, new in names.items():
        if old.casefold() in source.casefold():
            source = FORGOTTEN if new is None else new.join(re.split(re.escape(old), source, flags=re.IGNORECASE))
    return source
