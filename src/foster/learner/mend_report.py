"""What mending a classifier did, as plain results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foster.bundle.history import entry_title
from foster.learner.update_check import UpdateCheck


@dataclass(frozen=True)
class Remains:
    """What is left of a forgotten class where nothing can be taken out: in the backbone's weights."""

    name: str
    kind: str
    """Which of its images were looked at before they went: "held-out" or "exemplar"."""
    num_images: int
    num_told: int | None
    """How many of them are nearer to the mean of that class's exemplars, in features, than to any other's; None where
    no exemplar is kept."""
    answers: Mapping[str, int]
    """What they are taken for now, most often first."""

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        return {"kind": self.kind, "images": self.num_images, "told": self.num_told, "answers": dict(self.answers)}


@dataclass(frozen=True)
class MendReport:
    """What became of which classes, and what the others lost or won by it."""

    renamed: Mapping[str, str]
    """Old names and the new one of each; several that became one class have the same."""
    forgotten: tuple[str, ...] = ()
    num_exemplars: int = 0
    num_held_out: int = 0
    """How many images are gone with a class, or are kept of a merged one."""
    checks: tuple[UpdateCheck, ...] = ()
    """Before and after, where answers may have changed; what several parts got together counts for a merged class."""
    largest_difference: float | None = None
    """Between the probability of a merged class and the sum of those of its parts, on the same images."""
    mean_difference: float | None = None
    remains: tuple[Remains, ...] = ()

    def __str__(self) -> str:
        return entry_title(self.record())

    def record(self) -> dict[str, Any]:
        """Plain data for a bundle's history."""
        if not self.forgotten and not self.checks:
            return {"renamed": dict(self.renamed)}
        what = {"forgotten": list(self.forgotten), "remains": {one.name: one.record() for one in self.remains}}
        return {
            **(what if self.forgotten else {"renamed": dict(self.renamed)}),
            "checks": {check.kind: check.record() for check in self.checks},
        }
