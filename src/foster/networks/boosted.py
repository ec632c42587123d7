"""BoostedNetwork: FOSTER's network during a task, a frozen old network and a new branch that is fitted to its
residual."""

import copy
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from foster.networks.heads import Head, PreciseLinear, alignment_factor
from foster.networks.modules import both, freeze
from foster.networks.network import Backbone, Network, Output

NewOnOld = Literal["finetune", "zero", "zero_with_bias"]
"""FT, AZ and AZB of the paper."""
Sums = Literal["logits", "probabilities"]


class BoostedOutput(NamedTuple):
    """The output for N images.

    `logits` `[N, num_classes]` of the boosted network; `features` `[N, feature_size]`, the old ones first;
    `old_logits` `[N, num_known]` of the frozen old network; `new_branch_logits` `[N, num_classes]` of the new branch
    alone.
    """

    logits: Tensor
    features: Tensor
    old_logits: Tensor
    new_branch_logits: Tensor


class BoostedNetwork(nn.Module):
    """The frozen old network and a new branch with a common head, whose blocks are separate parameters.

    ```
                    old features   new features
    known classes [ old_block    |              ]  old_bias
                  [--------------|  new_block   ]
    new classes   [ new_on_old   |              ]  new_bias
    ```

    `new_on_old` is the paper's O. `old` has a head of its own, so that its logits can be distilled while `old_block` is
    trained. `new_branch_head` classifies by the new branch only (feature enhancement).

    The logits of old and new features are added. With `sums` "probabilities", their softmaxes are averaged instead, and
    `logits` are the logarithms of the mean.
    """

    sums: Sums = "logits"

    def __init__(self, old: Network, new_branch: Backbone, head: Head, new_branch_head: Head) -> None:
        """The blocks are copied from `head`. Use `expand` to grow a network."""
        super().__init__()
        self.old = old
        self.new_branch = new_branch
        self.new_branch_head = new_branch_head
        self.linear = PreciseLinear()
        num_known, old_size = old.num_classes, old.feature_size
        self.old_block = nn.Parameter(head.weight.detach()[:num_known, :old_size].clone())
        self.new_on_old = nn.Parameter(head.weight.detach()[num_known:, :old_size].clone())
        self.new_block = nn.Parameter(head.weight.detach()[:, old_size:].clone())
        self.old_bias = nn.Parameter(head.bias.detach()[:num_known].clone())
        self.new_bias = nn.Parameter(head.bias.detach()[num_known:].clone())

    @classmethod
    def expand(
        cls,
        old: Network,
        num_new: int,
        new_on_old: NewOnOld = "finetune",
        train_old_block: bool = True,
        sums: Sums = "logits",
    ) -> "BoostedNetwork":
        """Boost a frozen copy of `old` with a new branch that starts as a copy of its newest branch.

        The old block and biases are those of the old head; the other blocks are new. `new_on_old` "finetune" trains
        that block, "zero" keeps it and the new biases at 0, "zero_with_bias" keeps it at 0 and trains the new biases.
        With `train_old_block` False, the old block and the old biases are frozen.
        """
        assert isinstance(old.head, Head)
        new_branch = old.trained_copy(-1)
        head = old.head.grown(num_new, in_features=old.feature_size + new_branch.feature_size)
        new_branch_head = Head(new_branch.feature_size, head.num_classes).to(head.weight)
        frozen = freeze(Network(old.frozen_branches(), copy.deepcopy(old.head)))
        network = cls(frozen, new_branch, head, new_branch_head)
        if new_on_old != "finetune":
            network.new_on_old.requires_grad_(False).zero_()
        network.new_bias.requires_grad_(new_on_old != "zero")
        network.old_block.requires_grad_(train_old_block)
        network.old_bias.requires_grad_(train_old_block)
        network.sums = sums
        return network

    @property
    def weight(self) -> Tensor:
        """The weight of the whole head, `[num_classes, feature_size]`."""
        return torch.cat([torch.cat([self.old_block, self.new_on_old]), self.new_block], dim=1)

    @property
    def bias(self) -> Tensor:
        """The bias of the whole head, `[num_classes]`."""
        return torch.cat([self.old_bias, self.new_bias])

    @property
    def feature_size(self) -> int:
        return self.old_block.shape[1] + self.new_block.shape[1]

    @property
    def num_classes(self) -> int:
        return self.new_block.shape[0]

    @property
    def num_known(self) -> int:
        return self.old_block.shape[0]

    def forward(self, images: Tensor) -> BoostedOutput:
        return self.combined(*both(self.old, self.new_branch, images))

    def combined(self, old: Output, new_features: Tensor) -> BoostedOutput:
        """The output from that of the old network and the features of the new branch."""
        features = torch.cat([old.features, new_features], dim=1)
        logits = self.linear(features, self.weight, self.bias) if self.sums == "logits" else self._mixed(features)
        return BoostedOutput(logits, features, old.logits, self.new_branch_head(new_features))

    def _mixed(self, features: Tensor) -> Tensor:
        """log((S(old) + S(new)) / 2) from the features of both, `[N, num_classes]`."""
        old_features, new_features = features.split([self.old_block.shape[1], self.new_block.shape[1]], dim=1)
        old = self.linear(old_features, torch.cat([self.old_block, self.new_on_old]), self.bias)
        new = self.linear(new_features, self.new_block)
        return torch.logaddexp(old.log_softmax(1), new.log_softmax(1)) - math.log(2)

    @torch.no_grad()
    def align(self, num_known: int) -> float:
        """Weight alignment of the whole head, as `Head.align`. Returns the factor of the new rows."""
        factor = alignment_factor(self.weight, num_known)
        self.new_on_old.mul_(factor)
        self.new_block[num_known:].mul_(factor)
        return factor

    def as_network(self) -> Network:
        """The same function as a plain network of all branches; only frozen branches are shared."""
        branches = [*self.old.frozen_branches(), copy.deepcopy(self.new_branch)]
        return Network(branches, Head.from_values(self.weight, self.bias))

    def beyond(self, old: Network) -> Network:
        """The network of the new branch with its columns of the head."""
        return Network([self.new_branch], Head.from_values(self.new_block, self.bias))

    def compressed(self) -> Network:
        """The student of compression: the old network with new rows for the new classes, all of it trained."""
        return self.old.with_new_classes(self.num_classes - self.num_known)


def joined(networks: Sequence[BoostedNetwork]) -> Network:
    """The mean of boosted networks of the same old network, as one plain network.

    Its branches are the old ones, once, and every new branch. Logits are linear in these features, so one linear head
    gives exactly the mean of the logits.
    """
    share = 1 / len(networks)
    old_columns = torch.stack([network.weight[:, : network.old.feature_size] for network in networks]).mean(0)
    weight = torch.cat([old_columns, *(share * network.new_block for network in networks)], dim=1)
    bias = torch.stack([network.bias for network in networks]).mean(0)
    branches = [*networks[0].old.frozen_branches(), *(copy.deepcopy(network.new_branch) for network in networks)]
    return Network(branches, Head.from_values(weight, bias))
