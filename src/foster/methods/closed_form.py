"""The base of closed-form methods, and their network: the backbone is trained once, and the head is computed from
statistics."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.data.images import ImageSet
from foster.data.task import Task
from foster.methods.base import Method
from foster.methods.quarter_turns import first_phase
from foster.networks.closed_form import ClosedFormHead
from foster.networks.modules import freeze
from foster.networks.network import Backbone, Network, Output
from foster.settings.methods import ClosedFormSettings
from foster.training.phase import Evaluate, Phase

SettingsType = TypeVar("SettingsType", bound=ClosedFormSettings)


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

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "ClosedFormNetwork":
        return self.with_head(self.head.regrouped(groups))


def averages(maps: Tensor, grid: int) -> Tensor:
    """Maps `[N, C, H, W]` averaged over the cells of a grid of at most `grid` x `grid`, float32 `[N, C * cells]`."""
    height, width = maps.shape[2:]
    return functional.adaptive_avg_pool2d(maps.float(), (min(grid, height), min(grid, width))).flatten(1)


class ClosedForm(Method[SettingsType]):
    """The first task trains the backbone with cross-entropy; then it is frozen. Each task adds the statistics of its
    images and their mirror images, from which the head of all classes is computed.

    No image is kept. The head does not depend on the order of images or on their division into tasks.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first and self.settings.train_backbone:
            yield first_phase(self, task, self.settings.first_turns)
            yield Evaluate(self.settings.first_variant, self.network)
        self.network = self.computed(task)

    def first_network(self, task: Task) -> Network:
        return Network.create(self.new_backbone(), task.num_new).to(self.context.device)

    def computed(self, task: Task) -> ClosedFormNetwork:
        """The network with the head of all images so far, those of this task included."""
        if task.is_first:
            network = self.frozen(task)
        else:
            assert isinstance(self.network, ClosedFormNetwork)
            network = self.network.with_new_classes(task.num_new)
        features, labels = self.views(network, task.new_images.readable())
        head = network.head
        if task.is_first:
            head = self.new_head(features.shape[1], [task.num_new]).to(features.device).standardised_by(features)
        return network.with_head(head if self.context.is_dry_run else head.with_images(features, labels))

    def frozen(self, task: Task) -> ClosedFormNetwork:
        """The frozen backbone with an empty head."""
        if not self.settings.train_backbone:
            self.grow(task)
        return self.closed_form(self.network.frozen_branches(), ClosedFormHead(0, 0, 0))

    def views(self, network: ClosedFormNetwork, images: ImageSet) -> tuple[Tensor, Tensor]:
        """Features `[n, d]` and labels `[n]` of the images and, by the setting `mirror`, of their mirror images."""
        seen = [FeaturesOf(network, mirror) for mirror in ((False, True) if self.settings.mirror else (False,))]
        features = [self.context.infer(view, images.stack).features for view in seen]
        return torch.cat(features), images.labels.repeat(len(seen))

    def closed_form(self, branches: Sequence[Backbone], head: ClosedFormHead) -> ClosedFormNetwork:
        network = ClosedFormNetwork(branches, head, self.settings.num_stages, self.settings.grid)
        return network.to(self.context.device)

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> ClosedFormHead:
        """The head before the first image."""
        raise NotImplementedError

    def new_network(self, task_sizes: Sequence[int]) -> Network:
        # The number of features is that of the weights that are loaded.
        return self.closed_form([freeze(self.new_backbone())], self.new_head(0, task_sizes))


class FeaturesOf(nn.Module):
    """The features of images, or of their mirror images, without logits."""

    def __init__(self, network: Network, mirror: bool) -> None:
        super().__init__()
        self.network = network
        self.mirror = mirror

    def forward(self, images: Tensor) -> Output:
        features = self.network.features(images.flip(3) if self.mirror else images)
        return Output(features[:, :0], features)
