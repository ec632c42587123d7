"""Does a photo show anything that was learned? Confidence and nearness to a class, compared with photos that do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from foster.data.herding import unit_length
from foster.evaluation.predict import class_means, nearest_mean_scores

MIN_IMAGES = 20
"""With fewer held-out images, what is usual for known things would be noise."""

KEPT_SHARE = 0.95
"""How many photos of known things are answered, and not called unknown."""

UNFAMILIAR = (
    "unknown_below='auto' needs held-out images, of which this learner has too few; give a probability such as 0.7, or "
    "learn with preset fast or standard"
)

Unknown = float | Literal["auto"] | None
"""Below which probability a photo is unknown; "auto" goes by its familiarity."""

NUM_QUANTILES = 101
NOWHERE = 1e6
"""Where the mean of a class without an image lies: never the nearest, and a number that a bundle may hold."""
PREFIX = "familiarity."


@dataclass(frozen=True, eq=False)
class Familiarity:
    """What is usual for held-out photos of known classes: their confidence, their nearness to a class's mean, and the
    threshold above which `KEPT_SHARE` of them lie."""

    means: Tensor
    """Unit-length class means, `[C, d]`."""
    confidences: Tensor
    nearnesses: Tensor
    """Quantiles of both, `[NUM_QUANTILES]`."""
    threshold: float

    @classmethod
    def fitted(
        cls, features: Tensor, labels: Tensor, num_classes: int, held_out: tuple[Tensor, Tensor]
    ) -> "Familiarity | None":
        """From features `[N, d]` of trained photos, and probabilities and features of held-out ones; None for few."""
        means = class_means(features.float().cpu(), labels.cpu(), num_classes)
        return cls._of_means(means.clamp_max(NOWHERE), held_out)

    def regrouped(self, groups: Sequence[Sequence[int]], held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """For classes that are groups of these, with what is usual now for held-out photos."""
        return self._of_means(torch.stack([_mean_of(self.means[list(group)]) for group in groups]), held_out)

    @classmethod
    def _of_means(cls, means: Tensor, held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        probability, spared = held_out
        if len(spared) < MIN_IMAGES:
            return None
        steps = torch.linspace(0, 1, NUM_QUANTILES)
        confidences = torch.quantile(probability.float().cpu().amax(1), steps)
        nearnesses = torch.quantile(_nearness(spared.cpu(), means), steps)
        unset = cls(means, confidences, nearnesses, 0.0)
        threshold = torch.quantile(unset.scores(probability, spared), 1 - KEPT_SHARE)
        return cls(means, confidences, nearnesses, float(threshold))

    def scores(self, probability: Tensor, features: Tensor) -> Tensor:
        """From 0 to 1, `[N]`, for probabilities `[N, C]` and features `[N, d]`: the share of known photos that are less
        sure, and of those that are farther from a class, on average."""
        sure = _share_below(self.confidences, probability.float().cpu().amax(1))
        near = _share_below(self.nearnesses, _nearness(features.cpu(), self.means))
        return (sure + near) / 2

    def tensors(self) -> dict[str, Tensor]:
        """For a bundle."""
        named = {"means": self.means, "confidences": self.confidences, "nearnesses": self.nearnesses}
        named["threshold"] = torch.tensor(self.threshold)
        return {f"{PREFIX}{name}": value for name, value in named.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Familiarity | None":
        """What `tensors` gave, among other weights; None where it is not there."""
        own = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
        if own.keys() != {"means", "confidences", "nearnesses", "threshold"}:
            return None
        return cls(own["means"], own["confidences"], own["nearnesses"], float(own["threshold"]))


def _mean_of(means: Tensor) -> Tensor:
    """The unit-length mean `[d]` of some class means; one alone as it is, those of classes without images left out."""
    known = means[(means < NOWHERE).all(1)]
    return unit_length(known.mean(0)) if len(known) > 1 else (known if len(known) else means)[0]


def _nearness(features: Tensor, means: Tensor) -> Tensor:
    return nearest_mean_scores(unit_length(features), means).amax(1)


def _share_below(quantiles: Tensor, values: Tensor) -> Tensor:
    """Where values stand among those whose quantiles these are, in between as on a line; beyond the ends it goes on, so
    that what is stranger than everything known still has an order."""
    position = torch.searchsorted(quantiles, values.contiguous()).clamp(1, len(quantiles) - 1)
    low, high = quantiles[position - 1], quantiles[position]
    inside = (position - 1 + ((values - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)) / (len(quantiles) - 1)
    spread = (quantiles[-1] - quantiles[0]).clamp_min(1e-6)
    return inside + ((values - quantiles[0]) / spread).clamp_max(0)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """The chance that a known photo has a higher score `[n]` than an unknown one `[m]`; ties count half."""
    ordered = unknown.sort().values
    below = torch.searchsorted(ordered, known.contiguous()).double()
    not_above = torch.searchsorted(ordered, known.contiguous(), right=True).double()
    return float((below + not_above).sum() / 2 / (len(known) * len(unknown)))
