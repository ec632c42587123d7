"""What is known of the entries of a bundle's history. They are kept as they are; what is read from them is checked."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from foster.system.documents import Count, Document, Percent, Seconds, Share, first_problem


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
    """One `learn`, or a note of images that were removed by hand."""

    when: str = ""
    source: str = ""
    new_classes: tuple[str, ...] = ()
    more_of: dict[str, Count] = Field(default_factory=dict)
    trained_from: dict[str, Share] = Field(default_factory=dict)
    held_out_share: Share = 0.0
    trained_images: Count = 0
    seconds: Seconds = 0.0
    checks: dict[Literal["held-out", "exemplar"], _Check] = Field(default_factory=dict)
    removed_exemplars: tuple[str, ...] = ()


def checked_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry itself, where all that is known of it has the right form; else ValueError."""
    try:
        _Entry.model_validate(entry)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    return entry
