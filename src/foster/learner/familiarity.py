"""Does a photo show anything that was learned? Confidence and nearness to a class, compared with photos that do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

from foster.data.herding import unit_length

MIN_IMAGES = 20
"""With fewer held-out images, what is usual for known things would be noise."""

KEPT_SHARE = 0.95
"""How many photos of known things are answered, and not called unknown."""

UNFAMILIAR = (
    f"'auto' tells unknown things by {MIN_IMAGES} held-out images or more, and this learner has fewer; give a "
    "probability such as 0.7, or learn more photos, or hold out more: training=standard, or validation_share"
)

Unknown = float | Literal["auto"] | None
"""Below which probability a photo is unknown; "auto" goes by its familiarity."""

NUM_QUANTILES = 101
BELOW_ALL = 5.0
"""How much being stranger than all known photos counts, for each time that these are apart."""
PREFIX = "familiarity."

NUM_PARTS = 3
NUM_AXES = 128
"""Directions that are looked at one by one, those in which trained photos differ most; the others count together."""

SHRINKAGE = 0.6
"""By how much a covariance is drawn towards a multiple of the identity: few photos say little about it."""

LEAST_SPREAD = 0.01
"""Photos of a class differ at least so much, as a share of how much all differ."""


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Two Gaussians of unit-length features: of a class around its mean, with one covariance for all classes, and of
    all photos together. Nearness is the relative Mahalanobis distance (Ren et al., 2021) with its sign turned."""

    centre: Tensor
    """The mean of all photos, `[d]`."""
    axes: Tensor
    """Orthonormal directions, `[d, k]`."""
    inner: Tensor
    outer: Tensor
    """What makes the two Gaussians round, in coordinates along the axes, `[k, k]`."""
    stray: Tensor
    """What a squared distance from all the axes counts, `[]`."""

    @classmethod
    def fitted(cls, features: Tensor, labels: Tensor, axes: Tensor | None = None) -> "tuple[FeatureSpace, Tensor]":
        """From features `[N, d]` of trained photos; also the means `[C, k]` of the classes in `labels`, by id. `axes`
        are given where those of other photos will do."""
        unit = unit_length(features.double().cpu())
        owners, own = labels.cpu().unique(return_inverse=True)
        means = torch.stack([unit[own == row].mean(0) for row in range(len(owners))])
        centre = unit.mean(0)
        around, within = unit - centre, unit - means[own]
        if axes is None:
            axes = torch.linalg.eigh(around.T @ around).eigenvectors.flip(1)[:, :NUM_AXES]
        axes = axes.double()
        of_all = around.square().mean().clamp_min(torch.finfo(torch.float32).tiny)
        of_class = within.square().mean().clamp_min(LEAST_SPREAD * of_all)
        inner, outer = _rounding(within @ axes, of_class), _rounding(around @ axes, of_all)
        stray = (1 / of_class - 1 / of_all) / SHRINKAGE
        if len(owners) == 1:  # all photos together are that class
            outer, stray = torch.zeros_like(outer), 1 / (SHRINKAGE * of_class)
        space = cls(*(value.float() for value in (centre, axes, inner, outer, stray)))
        return space, ((means - centre) @ axes @ inner).float()

    def nearness(self, features: Tensor, means: Tensor) -> Tensor:
        """`[N]`, of features `[N, d]` to the nearest of `means`, which `fitted` gave."""
        around = unit_length(features.float().cpu()) - self.centre
        along = around @ self.axes
        to_class = torch.cdist(along @ self.inner, means, compute_mode="donot_use_mm_for_euclid_dist").square().amin(1)
        to_all = (along @ self.outer).square().sum(1)
        away = around.square().sum(1) - along.square().sum(1)
        return to_all - to_class - self.stray * away

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "FeatureSpace | None":
        """What `tensors` gave, among others; None where it is not there."""
        names = [field.name for field in fields(cls)]
        return cls(*(tensors[name] for name in names)) if all(name in tensors for name in names) else None


def _rounding(coordinates: Tensor, spread: Tensor) -> Tensor:
    """`[k, k]`: coordinates `[N, k]` times this have the identity for a covariance, once theirs is shrunk."""
    covariance = coordinates.T @ coordinates / len(coordinates)
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * spread * identity
    rounding: Tensor = torch.linalg.cholesky(torch.linalg.inv(shrunk))
    return rounding


@dataclass(frozen=True, eq=False)
class Familiarity:
    """What is usual for held-out photos of known classes: their confidence, their nearness to a class's mean, and the
    threshold above which about `KEPT_SHARE` of others lie."""

    means: Tensor
    """Means of classes that have images, `[M, k]`, in the coordinates of the `space`."""
    owners: Tensor
    """The id of each mean's class, `[M]`; a class that was merged has several means."""
    confidences: Tensor
    nearnesses: Tensor
    """Quantiles of both, `[NUM_QUANTILES]`."""
    threshold: float
    space: FeatureSpace

    @classmethod
    def fitted(cls, features: Tensor, labels: Tensor, held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """From features `[N, d]` of trained photos, and probabilities and features of held-out ones; None for few."""
        if len(held_out[1]) < MIN_IMAGES:
            return None
        space, means = FeatureSpace.fitted(features, labels)
        return cls._calibrated(means, labels.cpu().unique(), space, held_out)

    @classmethod
    def cross_fitted(
        cls, features: Tensor, labels: Tensor, positions: Tensor, probability: Tensor
    ) -> "Familiarity | None":
        """From features `[N, d]` of all photos, where none is held out, and probabilities `[n, C]` of those at
        `positions` `[n]` by classifiers without them; None for few.

        How near photos usually are is measured on thirds of them, each by the others: a photo lies too near to a mean
        that it is part of.
        """
        if len(positions) < MIN_IMAGES:
            return None
        near = torch.empty(len(positions))
        whole, whole_means = FeatureSpace.fitted(features, labels)
        for number in range(NUM_PARTS):
            part = torch.arange(len(positions)) % NUM_PARTS == number
            others = torch.ones(len(labels), dtype=torch.bool)
            others[positions[part]] = False
            space, means = FeatureSpace.fitted(features[others], labels[others], whole.axes)
            near[part] = space.nearness(features[positions[part]], means)
        return cls._calibrated(whole_means, labels.cpu().unique(), whole, (probability, features[positions]), near)

    def regrouped(self, groups: Sequence[Sequence[int]], held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """For classes that are groups of these, with what is usual now for held-out photos."""
        new_ids = {k: new for new, group in enumerate(groups) for k in group}
        staying = [row for row, owner in enumerate(self.owners.tolist()) if owner in new_ids]
        if len(held_out[1]) < MIN_IMAGES or not staying:
            return None
        owners = torch.tensor([new_ids[owner] for owner in self.owners[staying].tolist()])
        return self._calibrated(self.means[staying], owners, self.space, held_out)

    def of_groups(self, groups: Sequence[Sequence[int]]) -> "Familiarity":
        """For classes that are groups of these, with what is usual as it was."""
        new_ids = {k: new for new, group in enumerate(groups) for k in group}
        staying = [row for row, owner in enumerate(self.owners.tolist()) if owner in new_ids]
        owners = torch.tensor([new_ids[owner] for owner in self.owners[staying].tolist()])
        return replace(self, means=self.means[staying], owners=owners)

    @classmethod
    def _calibrated(
        cls,
        means: Tensor,
        owners: Tensor,
        space: FeatureSpace,
        held_out: tuple[Tensor, Tensor],
        near: Tensor | None = None,
    ) -> "Familiarity":
        probability, spared = held_out
        nothing = torch.empty(0)
        unset = cls(means, owners, nothing, nothing, 0.0, space)
        sure = _sureness(probability).logit(eps=1e-6)
        near = unset.nearness(spared) if near is None else near
        usual = replace(unset, confidences=_usual(sure).sigmoid(), nearnesses=_usual(near))
        # Each held-out photo is scored by the others alone, as any new photo is: by itself it would be too usual.
        by_others = replace(
            unset, confidences=_usual_for_others(sure).sigmoid(), nearnesses=_usual_for_others(near)
        )._scores(probability, near)
        return replace(usual, threshold=_threshold(by_others))

    def nearness(self, features: Tensor) -> Tensor:
        """To the nearest class, `[N]`, of features `[N, d]`."""
        return self.space.nearness(features, self.means)

    def scores(self, probability: Tensor, features: Tensor) -> Tensor:
        """From 0 to 1, `[N]`, for probabilities `[N, C]` and features `[N, d]`: the share of known photos that are less
        sure, and of those that are farther from a class. Their geometric mean is small where one of them is."""
        return self._scores(probability, self.nearness(features))

    def _scores(self, probability: Tensor, nearness: Tensor) -> Tensor:
        sure = _share_below(self.confidences, _sureness(probability))
        near = _share_below(self.nearnesses, nearness)
        return ((_logarithm(sure) + _logarithm(near)) / 2).exp()

    def tensors(self) -> dict[str, Tensor]:
        """For a bundle."""
        named = {"means": self.means, "owners": self.owners, "threshold": torch.tensor(self.threshold)}
        named |= {"confidences": self.confidences, "nearnesses": self.nearnesses}
        named |= self.space.tensors()
        return {f"{PREFIX}{name}": value for name, value in named.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Familiarity | None":
        """What `tensors` gave, among other weights; None where it is not there."""
        own = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
        space = FeatureSpace.of(own)
        if space is None or not own.keys() >= {"means", "owners", "confidences", "nearnesses", "threshold"}:
            return None
        threshold = float(own["threshold"])
        return cls(own["means"], own["owners"], own["confidences"], own["nearnesses"], threshold, space)


def _sureness(probability: Tensor) -> Tensor:
    """The confidence `[N]` of probabilities `[N, C]`."""
    return probability.float().cpu().amax(1)


def _threshold(scores: Tensor) -> float:
    """Above which about `KEPT_SHARE` of photos like those of these scores `[n]` lie.

    Of n photos the k-th from below has k/(n + 1) of others below it on average.
    """
    num_images = len(scores)
    position = (1 - KEPT_SHARE) * (num_images + 1) - 1
    return float(torch.quantile(scores, max(0.0, position / (num_images - 1))))


def _usual(values: Tensor) -> Tensor:
    """Quantiles `[NUM_QUANTILES]` of a normal distribution like that of values `[n]`: of few photos, the lowest says
    less about others than mean and spread of all do."""
    return _normal(values.mean(), values.std())


def _usual_for_others(values: Tensor) -> Tensor:
    """As `_usual` without one of the values `[n]`, for each of them: `[n, NUM_QUANTILES]`."""
    exact, num_others = values.double(), len(values) - 1
    mean = (exact.sum() - exact) / num_others
    # The squares of others around their mean, from those of all around the mean of all.
    squares = (exact - exact.mean()).square().sum() - (exact - exact.mean()) * (exact - mean)
    spread = (squares.clamp_min(0) / (num_others - 1)).sqrt()
    return _normal(mean[:, None], spread[:, None]).to(values.dtype)


def _normal(mean: Tensor, spread: Tensor) -> Tensor:
    shares = (torch.arange(NUM_QUANTILES, dtype=mean.dtype) + 0.5) / NUM_QUANTILES
    quantiles: Tensor = mean + spread * torch.special.ndtri(shares)
    return quantiles


def _share_below(quantiles: Tensor, values: Tensor) -> Tensor:
    """Where values `[n]` stand among those whose quantiles these are, `[q]` or, for each value its own, `[n, q]`; in
    between as on a line. Beyond the ends it goes on, so that what is stranger than everything known has an order."""
    quantiles, values = quantiles.expand(len(values), -1).contiguous(), values[:, None]
    num_steps = quantiles.shape[1] - 1
    position = torch.searchsorted(quantiles, values).clamp(1, num_steps)
    low, high = quantiles.gather(1, position - 1), quantiles.gather(1, position)
    inside = (position - 1 + ((values - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)) / num_steps
    lowest, highest = quantiles[:, :1], quantiles[:, -1:]
    return (inside + ((values - lowest) / (highest - lowest).clamp_min(1e-6)).clamp_max(0)).squeeze(1)


def _logarithm(shares: Tensor) -> Tensor:
    """Of shares of known photos; none of them is as little as half of the smallest that can be told apart, and below it
    the order goes on."""
    return shares.clamp_min(0.5 / (NUM_QUANTILES - 1)).log() + BELOW_ALL * shares.clamp_max(0)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """The chance that a known photo has a higher score `[n]` than an unknown one `[m]`; ties count half."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score([1] * len(known) + [0] * len(unknown), torch.cat((known, unknown)).numpy()))
