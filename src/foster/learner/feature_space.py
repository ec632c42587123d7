"""How near a photo is to what was learned: nearer to one of the classes than to all of them together."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from foster.data.herding import unit_length

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
    def fitted(cls, features: Tensor, labels: Tensor) -> "tuple[FeatureSpace, Tensor]":
        """From features `[N, d]` of trained photos; also the means `[C, k]` of the classes in `labels`, by id."""
        unit = unit_length(features.double().cpu())
        owners, own = labels.cpu().unique(return_inverse=True)
        means = torch.stack([unit[own == row].mean(0) for row in range(len(owners))])
        centre = unit.mean(0)
        around, within = unit - centre, unit - means[own]
        axes = torch.linalg.eigh(around.T @ around).eigenvectors.flip(1)[:, :NUM_AXES]
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
