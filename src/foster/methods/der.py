"""DER: dynamically expandable representation for class-incremental learning (CVPR 2021)."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from foster.data.task import Task
from foster.losses import auxiliary_cross_entropy, cross_entropy
from foster.methods.base import Method
from foster.networks.heads import Head
from foster.networks.modules import both, freeze
from foster.networks.network import Network
from foster.settings.methods import DerSettings
from foster.training.phase import Evaluate, Phase


class ExpandingOutput(NamedTuple):
    """Logits `[N, num_total]` of the whole network, and logits `[N, 1 + num_new]` of the newest branch's auxiliary
    head."""

    logits: Tensor
    auxiliary_logits: Tensor


class ExpandingNetwork(nn.Module):
    """A network during training, with the auxiliary head of its newest branch."""

    def __init__(self, network: Network, auxiliary_head: Head) -> None:
        super().__init__()
        self.network = network
        self.auxiliary_head = auxiliary_head

    def forward(self, images: Tensor) -> ExpandingOutput:
        *old_branches, new_branch = self.network.branches
        old_features, new_features = both(lambda seen: [old(seen) for old in old_branches], new_branch, images)
        features = torch.cat([*old_features, new_features], dim=1)
        return ExpandingOutput(self.network.head(features), self.auxiliary_head(new_features))


class DynamicallyExpandable(Method[DerSettings]):
    """One branch for every task, without pruning. Old branches are frozen, so their features do not change.

    The new branch starts as a copy of the newest. The head on all branches is trained with L_CE; an auxiliary head on
    the new branch separates the new classes from each other and from the known classes together (L_aux). With `align`,
    the head's new rows are scaled to the mean norm of the known ones, as in the public toolkits.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
        else:
            yield self.expand(task)
            if self.settings.align:
                self.network.align(task.num_known)
        self.remember(task)

    def num_branches(self, num_tasks: int) -> int:
        return num_tasks

    def expand(self, task: Task) -> Phase:
        num_known = task.num_known
        with self.initialising(task):
            known_size = self.network.feature_size
            self.network = self.network.with_new_branch(task.num_new)
            auxiliary_head = Head(self.network.feature_size - known_size, 1 + task.num_new)
        network = ExpandingNetwork(self.network, auxiliary_head.to(self.context.device))

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            out = network(images)
            return {
                "L_CE": cross_entropy(out.logits, labels),
                "L_aux": auxiliary_cross_entropy(out.auxiliary_logits, labels, num_known),
            }

        return Phase("expand", network, objective, self.settings.later, task.training)

    def trained_again(self) -> Network:
        """The newest branch and the whole head; old branches stay frozen."""
        network = super().trained_again()
        for branch in network.branches[:-1]:
            freeze(branch)
        return network
