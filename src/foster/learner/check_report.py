"""What a look at photos found, before anything is trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from foster.data.photos.decode import ImageLike
from foster.system.counts import counted


class Kind(NamedTuple):
    """A kind of finding: what it is called, and whether it is a problem, a plain fact that should be mended before
    learning; anything else is a remark, and for people to judge."""

    title: str
    is_problem: bool


KINDS = {
    "unreadable": Kind("cannot be read", True),
    "two-classes": Kind("the same photo, or nearly, in two classes", True),
    "in-test": Kind("test photos among the training photos, or nearly the same", True),
    "kept-elsewhere": Kind("already kept in the bundle as another class", True),
    "mislabelled": Kind("probably in the wrong class", False),
    "duplicate": Kind("the same photo several times in a class", False),
    "near-duplicate": Kind("nearly the same photo several times in a class", False),
    "tiny": Kind("very small", False),
    "small-class": Kind("classes with few photos", False),
    "empty-class": Kind("class folders without a photo", False),
}
"""In the order in which they are told."""


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo by its name, with its class, and the item that it can be decoded from."""

    name: str
    label: str
    item: ImageLike
    is_test: bool = False

    def record(self) -> dict[str, Any]:
        return {"image": self.name, "label": self.label, **({"part": "test"} if self.is_test else {})}


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that was found: of which kind, in which photos, and what there is to say of it."""

    kind: str
    photos: tuple[Photo, ...]
    detail: str
    looks_like: str | None = None
    """The class that a photo probably belongs to, where it is in the wrong one."""

    @property
    def is_problem(self) -> bool:
        return KINDS[self.kind].is_problem

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "kind": self.kind,
            "is_problem": self.is_problem,
            "detail": self.detail,
            **({"looks_like": self.looks_like} if self.looks_like is not None else {}),
            "photos": [photo.record() for photo in self.photos],
        }


@dataclass(frozen=True, eq=False)
class CheckReport:
    """All `findings`, each with its `kind`, `photos` and `detail`, by kind in the order of KINDS."""

    title: str
    class_counts: Mapping[str, int]
    """How many photos each class has, readable or not."""
    num_test_photos: int
    passed_over: Mapping[str, int]
    """Files that were not looked at: how many, by the ending of their names or by what they are."""
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()
    """What was not looked at, and why."""

    @property
    def num_photos(self) -> int:
        return sum(self.class_counts.values())

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.is_problem)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def __str__(self) -> str:
        others = len(self.findings) - len(self.problems)
        what = f"{counted(self.num_photos, 'photo')} of {counted(len(self.class_counts), 'class')}"
        return f"{what}: {counted(len(self.problems), 'problem')} and {counted(others, 'remark')}"

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "source": self.title,
            "photos": self.num_photos,
            "test_photos": self.num_test_photos,
            "classes": dict(self.class_counts),
            "passed_over": dict(self.passed_over),
            "problems": len(self.problems),
            "findings": [finding.record() for finding in self.findings],
            "remarks": list(self.remarks),
        }
