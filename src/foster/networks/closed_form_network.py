"""Closed-form networks: a frozen backbone, and a head that is computed from statistics of its features."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from foster.networks.closed_form import ClosedFormHead
from foster.networks.network import Backbone, Network


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


def averages(maps: Tensor, grid: int) -> Tensor:
    """Maps `[N, C, H, W]` averaged over the cells of a grid of at most `grid` x `grid`, float32 `[N, C * cells]`."""
    height, width = maps.shape[2:]
    return functional.adaptive_avg_pool2d(maps.float(), (min(grid, height), min(grid, width))).flatten(1)
