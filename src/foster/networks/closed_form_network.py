"""Closed-form networks: a frozen backbone, and a head that is computed from statistics of its features."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.networks.closed_form import ClosedFormHead
from foster.networks.network import Backbone, Network, Output


class ClosedFormNetwork(Network):
    """A network whose features are the maps of its last `num_stages` stages, averaged over the cells of a grid.

    With `grid` 2 and `num_stages` 2, an image of ResNet-32 has 4 (32 + 64) = 384 features.
    """

    head: ClosedFormHead

    def __init__(self, branches: Iterable[Backbone], head: ClosedFormHead, num_stages: int, grid: int) -> None:
        super().__init__(branches, head)
        self.num_stages = num_stages
        self.grid = grid

    def features(self, images: Tensor) -> Tensor:
        return self.features_of([branch.stages(images) for branch in cast(Iterable[Backbone], self.branches)])

    def features_of(self, stages: Sequence[Sequence[Tensor]]) -> Tensor:
        last = [maps for outputs in stages for maps in outputs[-self.num_stages :]]
        return torch.cat([averages(maps, self.grid) for maps in last], dim=1)

    def with_head(self, head: ClosedFormHead) -> "ClosedFormNetwork":
        """The same backbone under another head."""
        return ClosedFormNetwork(self.frozen_branches(), head, self.num_stages, self.grid)

    def with_new_classes(self, num_new: int) -> "ClosedFormNetwork":
        """The same network with `num_new` more classes; the backbone stays frozen."""
        return self.with_head(self.head.grown(num_new))

    def regrouped(self, groups: Sequence[Sequence[int]], task_sizes: Sequence[int]) -> "ClosedFormNetwork":
        return self.with_head(self.head.regrouped(groups, task_sizes))


class NetworkWithAnalyticTeacher(Network):
    """A network and its analytic teacher, a closed-form network whose statistics include every image so far. It teaches
    the students of later tasks.

    The teacher is saved with the network and does not change its predictions. `num_first` is the number of classes on
    which the teacher's backbone was trained.
    """

    analytic: ClosedFormNetwork
    num_first: Tensor

    def __init__(self, network: Network, analytic: Network, num_first: int | Tensor) -> None:
        super().__init__(cast(Iterable[Backbone], network.branches), network.head)
        assert isinstance(analytic, ClosedFormNetwork)
        self.analytic = analytic
        self.register_buffer("num_first", torch.as_tensor(num_first))

    def num_parameters(self) -> int:
        return sum(value.numel() for part in (self.branches, self.head) for value in part.parameters())

    @property
    def statistics_bytes(self) -> int:
        """The bytes of the teacher, including its backbone."""
        return sum(value.numel() * value.element_size() for value in self.analytic.state_dict().values())


class MixedTeacher(nn.Module):
    """The weighted mean of two teachers' logits: `weight` is the weight of the analytic teacher.

    For each image, the scores of the analytic teacher are first shifted and scaled to the mean and the standard
    deviation of the other teacher's logits.
    """

    def __init__(self, teacher: nn.Module, analytic: ClosedFormNetwork, weight: float) -> None:
        super().__init__()
        self.teacher = teacher
        self.analytic = analytic.with_head(analytic.head.without_statistics())
        self.weight = weight

    def forward(self, images: Tensor) -> Output:
        out = self.teacher(images)
        scores = standardised_as(self.analytic(images).logits, out.logits)
        return Output(torch.lerp(out.logits, scores.to(out.logits), self.weight), out.features)


def standardised_as(scores: Tensor, logits: Tensor) -> Tensor:
    """`scores` `[N, C]`, with each row shifted and scaled to the mean and deviation of that row of `logits` `[N,
    C]`."""
    deviation, mean = torch.std_mean(logits, dim=1, keepdim=True, correction=0)
    score_deviation, score_mean = torch.std_mean(scores, dim=1, keepdim=True, correction=0)
    return mean + (scores - score_mean) * (deviation / score_deviation.clamp_min(torch.finfo(scores.dtype).tiny))


def averages(maps: Tensor, grid: int) -> Tensor:
    """Maps `[N, C, H, W]` averaged over the cells of a grid of at most `grid` x `grid`, float32 `[N, C * cells]`."""
    height, width = maps.shape[2:]
    return functional.adaptive_avg_pool2d(maps.float(), (min(grid, height), min(grid, width))).flatten(1)
