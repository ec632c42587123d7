"""What is known of the entries of a bundle's history. They are kept as they are; what is read from them is checked."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, lt=2**63)]
Percent = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Known(BaseModel):
    """Keys of other versions are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _ClassRow(_Known):
    images: Count
    before: Percent | None
    after: Percent | None
    negative_flips: Count


class _Check(_Known):
    known_before: Percent | None = None
    known_after: Percent | None = None
    new_after: Percent | None = None
    negative_flips: Count = 0
    classes: dict[str, _ClassRow] = {}


class _Entry(_Known):
    """One `learn`, or a note of images that were removed by hand."""

    when: str = ""
    source: str = ""
    new_classes: list[str] = []
    more_of: dict[str, Count] = {}
    trained_from: dict[str, Share] = {}
    held_out_share: Share = 0.0
    trained_images: Count = 0
    seconds: float = Field(default=0, ge=0, le=1e12)
    checks: dict[Literal["held-out", "exemplar"], _Check] = {}
    removed_exemplars: list[str] = []


def checked_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry itself, where all that is known of it has the right form; else ValueError."""
    try:
        _Entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return entry
