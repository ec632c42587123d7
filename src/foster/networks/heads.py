"""Heads: they map features to logits, for a growing number of classes."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.networks.statistics import unit_roots


def precise_linear(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`features @ weight.T + bias` in the precision of the weight, also under autocast.

    Heads are small, so this costs little. In bfloat16, logits would have ties and losses rounding errors.
    """
    features = features.to(weight.dtype)
    if not torch.is_autocast_enabled(features.device.type):
        return functional.linear(features, weight, bias)
    with torch.autocast(features.device.type, enabled=False):
        return functional.linear(features, weight, bias)


class PreciseLinear(nn.Module):
    """`precise_linear` as a module without parameters, which a kernel can replace."""

    def forward(self, features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return precise_linear(features, weight, bias)


class Head(nn.Module):
    """A linear head: it maps features `[N, in_features]` to logits `[N, num_classes]`.

    `weight` `[num_classes, in_features]` starts from U(±sqrt(3 / in_features)), `bias` `[num_classes]` from 0.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        bound = math.sqrt(3 / in_features)
        self.weight = nn.Parameter(torch.empty(num_classes, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.linear = PreciseLinear()

    @classmethod
    def from_values(cls, weight: Tensor, bias: Tensor) -> Self:
        """A head with copies of these values. No random number is drawn."""
        head = cls(in_features=weight.shape[1], num_classes=0)
        head.weight = nn.Parameter(weight.detach().clone())
        head.bias = nn.Parameter(bias.detach().clone())
        return head

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def num_classes(self) -> int:
        return self.weight.shape[0]

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.linear(features, self.weight, self.bias)
        return logits

    def grown(self, num_new: int, in_features: int | None = None) -> "Head":
        """A new head with `num_new` more classes, and optionally more features.

        The known classes keep their biases and their weights for the old features exactly, as the top left block of the
        new weight. All other weights are new, with the bound of the new number of features.
        """
        in_features = self.in_features if in_features is None else in_features
        head = Head(in_features, self.num_classes + num_new).to(self.weight)
        with torch.no_grad():
            head.weight[: self.num_classes, : self.in_features] = self.weight
            head.bias[: self.num_classes] = self.bias
        return head

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "Head":
        """A new head with one class for each group of present classes.

        A class that is alone in its group keeps its logits exactly; several classes get the mean of theirs.
        """
        parts = (self.weight, self.bias)
        return Head.from_values(*(torch.stack([part[list(group)].mean(0) for group in groups]) for part in parts))

    @torch.no_grad()
    def align(self, num_known: int) -> None:
        """Weight alignment (WA): scale the rows of new classes to the mean norm of the known ones. Biases do not
        change."""
        self.weight[num_known:] *= alignment_factor(self.weight, num_known)


class RootHead(Head):
    """A linear head on the square roots of features. It is computed from statistics and not trained."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(unit_roots(features))


def alignment_factor(weight: Tensor, num_known: int) -> float:
    """The mean norm of the first `num_known` rows of `weight` `[C, d]`, divided by that of the others."""
    norms = weight.norm(dim=1)
    return float(norms[:num_known].mean() / norms[num_known:].mean())


class CosineHead(nn.Module):
    """A cosine head: the logit of a class is `scale` times the similarity of a feature to the proxies of the class.

    A class has `num_proxies` proxies. With cosines s_k, its similarity is the sum over k of softmax(s)_k · s_k, which
    for one proxy is the plain cosine. `scale` (the papers' sigma) is learned from 1; proxies start at U(±1 / sqrt(d)).

    `old_proxies` `[num_old, num_proxies, d]`, of the classes known before the last growth, are frozen; the others are
    `new_proxies` `[num_classes - num_old, num_proxies, d]`. They are separate parameters because a parameter cannot be
    frozen in part. A method that trains all of them calls `old_proxies.requires_grad_(True)`.
    """

    def __init__(self, in_features: int, num_classes: int, num_proxies: int = 1, num_old: int = 0) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        proxies = torch.empty(num_classes, num_proxies, in_features).uniform_(-bound, bound)
        self.old_proxies = nn.Parameter(proxies[:num_old].clone(), requires_grad=False)
        self.new_proxies = nn.Parameter(proxies[num_old:].clone())
        self.scale = nn.Parameter(torch.ones(()))
        self.linear = PreciseLinear()

    @property
    def proxies(self) -> Tensor:
        """All proxies, `[num_classes, num_proxies, d]`."""
        return torch.cat([self.old_proxies, self.new_proxies])

    @property
    def in_features(self) -> int:
        return self.new_proxies.shape[2]

    @property
    def num_proxies(self) -> int:
        return self.new_proxies.shape[1]

    @property
    def num_classes(self) -> int:
        return self.old_proxies.shape[0] + self.new_proxies.shape[0]

    def forward(self, features: Tensor) -> Tensor:
        directions = functional.normalize(self.proxies, dim=2).flatten(0, 1)
        cosines: Tensor = self.linear(functional.normalize(features, dim=1), directions)
        cosines = cosines.reshape(-1, self.num_classes, self.num_proxies)
        return (cosines.softmax(dim=2) * cosines).sum(dim=2) * self.scale

    def grown(self, num_new: int) -> "CosineHead":
        """A new head with `num_new` more classes. Present proxies become old ones, frozen; `scale` is kept."""
        num_old = self.num_classes
        head = CosineHead(self.in_features, num_old + num_new, self.num_proxies, num_old).to(self.new_proxies)
        with torch.no_grad():
            head.old_proxies.copy_(self.proxies)
            head.scale.copy_(self.scale)
        return head
