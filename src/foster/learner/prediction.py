"""The answer of a learner for an image: its best classes, or that it is unknown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from foster.errors import DataError

UNKNOWN = "unknown"


def check_not_unknown(name: str, origin: str) -> None:
    """Raise DataError for the class name "unknown", which is the answer for images of no known class."""
    if name == UNKNOWN:
        raise DataError(f"'{UNKNOWN}' is the answer to things that were not learned: choose another name ({origin})")


@dataclass(frozen=True)
class Candidate:
    """A class and how probable it is, from 0 to 1."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The best classes of one image, or why it could not be read.

    `confidence` is from 0 to 1, and `top` has the best classes, each with its `label` and `probability`. `label` is
    "unknown" if `is_unknown`, and None if there is an `error`.
    """

    name: Annotated[str, Field(serialization_alias="image")]
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
        facts = asdict(self)
        return {"image": facts.pop("name"), **facts, "top": list(facts["top"])}


class CalibrationWarning(UserWarning):
    """A confidence is compared with a threshold, but the confidence is not calibrated."""
