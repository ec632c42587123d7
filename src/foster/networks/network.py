"""Network: one or more backbones and a head, and how it grows."""

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from foster.networks.closed_form import ClosedFormHead
from foster.networks.heads import CosineHead, Head
from foster.networks.modules import at_once, freeze, is_frozen, unfreeze


class Backbone(nn.Module):
    """A module that maps images of any size to features. A subclass sets `feature_size`, the number of channels of the
    last stage, and implements `stages`; features are the last stage, averaged over all positions."""

    feature_size: int

    def stages(self, images: Tensor) -> list[Tensor]:
        """The outputs `[N, C, H, W]` of every stage, the last with `feature_size` channels."""
        raise NotImplementedError

    def compiled_parts(self) -> list[nn.Module]:
        """The modules that are compiled separately; equal ones share their code. If empty, `stages` is compiled."""
        return []

    def pool(self, maps: Tensor) -> Tensor:
        """Average the last stage `[N, feature_size, H, W]` to features `[N, feature_size]`, at least in float32."""
        return maps.mean(dim=(2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images `[N, 3, H, W]` to features `[N, feature_size]`."""
        return self.pool(self.stages(images)[-1])


def stage_outputs(stages: Iterable[nn.Module], maps: Tensor) -> list[Tensor]:
    outputs = []
    for stage in stages:
        maps = stage(maps)
        outputs.append(maps)
    return outputs


class Output(NamedTuple):
    """Logits `[N, num_classes]` and features `[N, feature_size]`."""

    logits: Tensor
    features: Tensor


class Network(nn.Module):
    """One or more backbones (`branches`), and a head on their concatenated features.

    A network never changes its size: the methods `with_...` return a new one, which shares only frozen branches with
    this one. Which parts of the new network are frozen does not depend on those of this one.
    """

    def __init__(self, branches: Iterable[Backbone], head: Head | CosineHead | ClosedFormHead) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.head = head

    @classmethod
    def create(cls, backbone: Backbone, num_classes: int) -> "Network":
        """A network of one backbone and a new linear head."""
        return cls([backbone], Head(backbone.feature_size, num_classes))

    @property
    def feature_size(self) -> int:
        return self.head.in_features

    @property
    def num_classes(self) -> int:
        return self.head.num_classes

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def statistics_bytes(self) -> int:
        """The bytes of the statistics of a closed-form head; 0 for a trained head."""
        return self.head.statistics.num_bytes if isinstance(self.head, ClosedFormHead) else 0

    def features(self, images: Tensor) -> Tensor:
        """The concatenated features of all branches, `[N, feature_size]`, oldest branch first."""
        if torch.is_grad_enabled():
            features = [branch(images) for branch in self.branches]
        else:
            features = at_once([partial(branch, images) for branch in self.branches])
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)

    def features_of(self, stages: Sequence[Sequence[Tensor]]) -> Tensor:
        """The concatenated features, from the outputs of the stages of every branch."""
        branches = cast(Iterable[Backbone], self.branches)
        return torch.cat([branch.pool(maps[-1]) for branch, maps in zip(branches, stages, strict=True)], dim=1)

    def forward(self, images: Tensor) -> Output:
        features = self.features(images)
        return Output(self.head(features), features)

    def trained_copy(self, index: int) -> Backbone:
        """A copy of one branch, unfrozen."""
        return cast(Backbone, unfreeze(copy.deepcopy(self.branches[index])))

    def frozen_branches(self) -> list[Backbone]:
        """All branches, frozen, oldest first. Branches that are already frozen are shared, others are copied."""
        branches = cast(Iterable[Backbone], self.branches)
        return [branch if is_frozen(branch) else freeze(copy.deepcopy(branch)) for branch in branches]

    def align(self, num_known: int) -> None:
        """Weight alignment of a linear head, as `Head.align`."""
        assert isinstance(self.head, Head)
        self.head.align(num_known)

    def with_new_classes(self, num_new: int) -> "Network":
        """The same network with `num_new` more classes; all branches are trained."""
        branches = [self.trained_copy(index) for index in range(len(self.branches))]
        return Network(branches, self.head.grown(num_new))

    def with_new_branch(self, num_new: int) -> "Network":
        """The same network with one more branch and `num_new` more classes, as in DER.

        The old branches are frozen. The new branch starts as a copy of the newest. The head keeps its weights for known
        classes on old features; all other weights are new.
        """
        assert isinstance(self.head, Head)
        new_branch = self.trained_copy(-1)
        head = self.head.grown(num_new, in_features=self.feature_size + new_branch.feature_size)
        return Network([*self.frozen_branches(), new_branch], head)

    def beyond(self, old: "Network") -> "Network":
        """The network of the branches that `old` does not have, with their columns of the linear head."""
        assert isinstance(self.head, Head)
        new_columns = self.head.weight.detach()[:, old.feature_size :]
        branches = cast(Iterable[Backbone], self.branches[len(old.branches) :])
        return Network(branches, Head.from_values(new_columns, self.head.bias))

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "Network":
        """The same backbones with a linear head that has one class for each group of present classes. Present classes
        in no group are removed."""
        assert isinstance(self.head, Head)
        return Network(cast(Iterable[Backbone], copy.deepcopy(self.branches)), self.head.regrouped(groups))
