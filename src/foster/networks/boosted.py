"""BoostedNetwork: FOSTER's network during a task. A new branch is fitted to the residual of a frozen old network."""

import copy
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from foster.networks.heads import Head, PreciseLinear, alignment_factor
from foster.networks.modules import both, freeze
from foster.networks.network import Network, Output

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

    def __init__(
        self,
        old: Network,
        num_new: int,
        new_on_old: NewOnOld = "finetune",
        train_old_block: bool = True,
        sums: Sums = "logits",
    ) -> None:
        """Boost a frozen copy of `old` with a new branch that starts as a copy of its newest branch.

        The old block and biases are those of the old head; the other blocks are new. `new_on_old` "finetune" trains
        that block, "zero" keeps it and the new biases at 0, "zero_with_bias" keeps it at 0 and trains the new biases.
        With `train_old_block` False, the old block and the old biases are frozen.
        """
        super().__init__()
        assert isinstance(old.head, Head)
        num_known, old_size, new_branch = old.num_classes, old.feature_size, old.trained_copy(-1)
        head = old.head.grown(num_new, in_features=old_size + new_branch.feature_size)
        self.sums = sums
        self.old = freeze(Network(old.frozen_branches(), copy.deepcopy(old.head)))
        self.new_branch = new_branch
        self.new_branch_head = Head(new_branch.feature_size, head.num_classes).to(head.weight)
        self.linear = PreciseLinear()
        weight, bias = head.weight.detach(), head.bias.detach()
        if new_on_old != "finetune":
            weight[num_known:, :old_size] = 0

        def block(values: Tensor, is_trained: bool) -> nn.Parameter:
            return nn.Parameter(values.clone(), requires_grad=is_trained)

        self.old_block = block(weight[:num_known, :old_size], train_old_block)
        self.new_on_old = block(weight[num_known:, :old_size], new_on_old == "finetune")
        self.new_block = block(weight[:, old_size:], True)
        self.old_bias = block(bias[:num_known], train_old_block)
        self.new_bias = block(bias[num_known:], new_on_old != "zero")

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
    def align(self, num_known: int) -> None:
        """Weight alignment of the whole head, as `Head.align`."""
        factor = alignment_factor(self.weight, num_known)
        self.new_on_old.mul_(factor)
        self.new_block[num_known:].mul_(factor)

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
