"""Heads that are computed from statistics of features instead of trained."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.networks.heads import precise_linear
from foster.networks.statistics import Statistics, discriminants, random_features, random_weights, ridge
from foster.seeding import Address


class ClosedFormHead(nn.Module):
    """A linear classifier that is computed from statistics, which are summed over tasks.

    Features `[N, in_features]` are standardised by `mean` and `deviation` `[in_features]` of the first task, and mapped
    to `[N, num_mapped]`. `counts`, `sums` and `second_moment` are the statistics of the mapped features.

    When a state is loaded, the head takes the sizes of that state, except the number of classes.
    """

    mean: Tensor
    deviation: Tensor
    counts: Tensor
    sums: Tensor
    second_moment: Tensor

    def __init__(self, in_features: int, num_mapped: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(in_features))
        self.register_buffer("deviation", torch.ones(in_features))
        for name, value in vars(Statistics.empty(num_classes, num_mapped)).items():
            self.register_buffer(name, value)
        self.weight = nn.Parameter(torch.zeros(num_classes, num_mapped), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(num_classes), requires_grad=False)

    @property
    def in_features(self) -> int:
        return len(self.mean)

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.counts, self.sums, self.second_moment)

    def solution(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        """Compute weight `[C, num_mapped]` and bias `[C]` from the statistics."""
        raise NotImplementedError

    def mapped(self, features: Tensor) -> Tensor:
        """The mapped features `[N, num_mapped]`; in this class the standardised features themselves."""
        return (features.to(self.mean.dtype) - self.mean) / self.deviation

    def forward(self, features: Tensor) -> Tensor:
        return precise_linear(self.mapped(features), self.weight, self.bias)

    def standardised_by(self, features: Tensor) -> Self:
        """The same head with the mean and the deviation of these features `[N, in_features]`."""
        head = self._shared()
        deviation, mean = torch.std_mean(features.double(), dim=0, correction=0)
        head.mean = mean.float().to(self.mean.device)
        # A constant feature becomes 0.
        head.deviation = torch.where(deviation > 0, deviation, 1.0).float().to(self.mean.device)
        return head

    @torch.no_grad()
    def with_images(self, features: Tensor, labels: Tensor) -> Self:
        """The head computed also from these images, with features `[N, in_features]` and labels `[N]`."""
        return self._of(self.statistics.added(features, labels, self.mapped))

    def grown(self, num_new: int) -> Self:
        """A head with `num_new` more classes without images; their weights are 0."""
        head = self._shared()
        head._set(self.statistics.grown(num_new))
        head.weight = _constant(functional.pad(self.weight, (0, 0, 0, num_new)))
        head.bias = _constant(functional.pad(self.bias, (0, num_new)))
        return head

    def regrouped(self, groups: Sequence[Sequence[int]]) -> Self:
        """A head with one class for each group of present classes; see `Statistics.regrouped`."""
        return self._of(self.statistics.regrouped(groups))

    def _of(self, statistics: Statistics) -> Self:
        head = self._shared()
        head._set(statistics)
        weight, bias = self.solution(statistics)
        head.weight, head.bias = _constant(weight.float()), _constant(bias.float())
        return head

    def _set(self, statistics: Statistics) -> None:
        self.counts, self.sums = statistics.counts, statistics.sums
        self.second_moment = statistics.second_moment

    def _shared(self) -> Self:
        """A copy that shares all tensors with this head. They may be large, and none is changed in place."""
        return copy.deepcopy(self, {id(value): value for value in self.state_dict(keep_vars=True).values()})

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for name, own in self.state_dict(keep_vars=True).items():
            if name != "counts" and isinstance(found := state_dict.get(prefix + name), Tensor):
                empty = self.mean.new_empty(found.shape, dtype=own.dtype)
                setattr(self, name, _constant(empty) if isinstance(own, nn.Parameter) else empty)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class DiscriminantHead(ClosedFormHead):
    """Linear discriminants of standardised features (SLDA): see `discriminants`."""

    def __init__(self, in_features: int, num_classes: int, shrinkage: float) -> None:
        super().__init__(in_features, in_features, num_classes)
        self.shrinkage = shrinkage

    def solution(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        return discriminants(statistics, self.shrinkage)


class RidgeHead(ClosedFormHead):
    """Ridge regression to labels of 0 and 1 on random features h = ReLU(phi R + b) of standardised features phi.

    `random_weight` is R `[in_features, num_features]` and `random_bias` is b `[num_features]`.
    """

    def __init__(self, in_features: int, num_classes: int, num_features: int, penalty: float, address: Address) -> None:
        super().__init__(in_features, num_features, num_classes)
        self.penalty = penalty
        weight, bias = random_weights(max(1, in_features), num_features, address)
        self.random_weight, self.random_bias = _constant(weight[:in_features]), _constant(bias)

    def mapped(self, features: Tensor) -> Tensor:
        return random_features(super().mapped(features), self.random_weight, self.random_bias)

    def solution(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        return ridge(statistics.second_moment, statistics.sums, self.penalty), torch.zeros_like(statistics.sums[:, 0])


def _constant(values: Tensor) -> nn.Parameter:
    """A parameter without gradient."""
    return nn.Parameter(values.detach(), requires_grad=False)
