"""Network: one or more backbones whose features a head turns into logits, and how it grows."""

import copy
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from foster.networks.closed_form import ClosedFormHead
from foster.networks.freezing import freeze, is_frozen, unfreeze
from foster.networks.heads import CosineHead, Head


class Backbone(nn.Module):
    """Images of any size to features. A subclass sets `feature_size`, the channels of the last stage, and writes
    `stages`; the last stage is averaged over all positions."""

    feature_size: int

    def stages(self, images: Tensor) -> list[Tensor]:
        """The outputs `[N, C, H, W]` of every stage, the last with `feature_size` channels."""
        raise NotImplementedError

    def compiled_parts(self) -> list[nn.Module]:
        """The modules that are compiled, one by one; equal ones share their code. Without any, `stages` is compiled."""
        return []

    def pool(self, maps: Tensor) -> Tensor:
        """The last stage's output `[N, feature_size, H, W]` as features `[N, feature_size]`, in float32 at least."""
        return maps.mean(dim=(2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images `[N, 3, H, W]` to features `[N, feature_size]`."""
        return self.pool(self.stages(images)[-1])


def stage_outputs(stages: Iterable[nn.Module], maps: Tensor) -> list[Tensor]:
    """The outputs of all stages, each computed from that of the stage before it."""
    outputs = []
    for stage in stages:
        maps = stage(maps)
        outputs.append(maps)
    return outputs


class Output(NamedTuple):
    """Logits `[N, num_classes]` and the features `[N, feature_size]` they were made from."""

    logits: Tensor
    features: Tensor


class Network(nn.Module):
    """Backbones side by side (`branches`, usually one), and a head on their concatenated features.

    A network never changes its size: the methods `with_...` return a new one. The two share only branches that are
    frozen in both. What is frozen in the new one depends on the method alone, not on what was frozen here.
    """

    def __init__(self, branches: Iterable[Backbone], head: Head | CosineHead | ClosedFormHead) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.head = head

    @classmethod
    def create(cls, backbone: Backbone, num_classes: int) -> "Network":
        """One backbone with a fresh linear head."""
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
        """The bytes of statistics from which a closed-form head is computed; 0 for a trained head."""
        return self.head.statistics.num_bytes if isinstance(self.head, ClosedFormHead) else 0

    def features(self, images: Tensor) -> Tensor:
        """The features of all branches side by side, `[N, feature_size]`, oldest branch first."""
        features = [branch(images) for branch in self.branches]
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)

    def features_of(self, stages: Sequence[Sequence[Tensor]]) -> Tensor:
        """The same from the outputs of every branch's stages."""
        branches = cast(Iterable[Backbone], self.branches)
        return torch.cat([branch.pool(maps[-1]) for branch, maps in zip(branches, stages, strict=True)], dim=1)

    def forward(self, images: Tensor) -> Output:
        features = self.features(images)
        return Output(self.head(features), features)

    def trained_copy(self, index: int) -> Backbone:
        """A copy of one branch, to be trained."""
        return cast(Backbone, unfreeze(copy.deepcopy(self.branches[index])))

    def frozen_branches(self) -> list[Backbone]:
        """All branches, frozen, oldest first. One that is frozen already is shared: nothing changes it."""
        branches = cast(Iterable[Backbone], self.branches)
        return [branch if is_frozen(branch) else freeze(copy.deepcopy(branch)) for branch in branches]

    def align(self, num_known: int, scale: float = 1.0) -> float:
        """Weight alignment of a linear head, as `Head.align`. Returns the factor of the new rows."""
        if not isinstance(self.head, Head):
            raise ValueError(f"only a linear head can be aligned, not {type(self.head).__name__}")
        return self.head.align(num_known, scale)

    def with_new_classes(self, num_new: int) -> "Network":
        """The same network with `num_new` more classes; all branches are trained."""
        branches = [self.trained_copy(index) for index in range(len(self.branches))]
        return Network(branches, self.head.grown(num_new))

    def with_new_branch(self, num_new: int) -> "Network":
        """One more branch and `num_new` more classes (as DER grows).

        The old branches are frozen. The new one starts as a copy of the newest. The head keeps its weights for known
        classes on old features; all other weights are fresh.
        """
        new_branch = self.trained_copy(-1)
        head = self.head.grown(num_new, in_features=self.feature_size + new_branch.feature_size)
        return Network([*self.frozen_branches(), new_branch], head)

    def beyond(self, old: "Network") -> "Network":
        """The branches that `old` does not have, with their columns of the linear head."""
        assert isinstance(self.head, Head)
        new_columns = self.head.weight.detach()[:, old.feature_size :]
        branches = cast(Iterable[Backbone], self.branches[len(old.branches) :])
        return Network(branches, Head.from_values(new_columns, self.head.bias))

    def regrouped(self, groups: Sequence[Sequence[int]], task_sizes: Sequence[int]) -> "Network":
        """The same backbones under a head with a class for each group of the present ones, as if it had grown by tasks
        of these sizes; present classes in no group are gone."""
        branches = cast(Iterable[Backbone], copy.deepcopy(self.branches))
        return Network(branches, self.head.regrouped(groups, task_sizes))
