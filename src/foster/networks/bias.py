"""BiasCorrectedHead: BiC's linear head, with two numbers a task that correct the bias to new classes."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from foster.networks.heads import Head


class Correction(nn.Module):
    """alpha and beta of one task's logits, alpha z + beta; 1 and 0 at first, and frozen until a method fits them."""

    def __init__(self) -> None:
        super().__init__()
        # One element each, not scalars: a scalar would not lift the logits of a bfloat16 step back to float32.
        self.alpha = nn.Parameter(torch.ones(1), requires_grad=False)
        self.beta = nn.Parameter(torch.zeros(1), requires_grad=False)


class BiasCorrectedHead(Head):
    """A linear head whose logits are corrected task by task: alpha_t z_c + beta_t for every class c of task t."""

    def __init__(self, in_features: int, task_sizes: Sequence[int]) -> None:
        super().__init__(in_features, sum(task_sizes))
        self.task_sizes = tuple(task_sizes)
        self.corrections = nn.ModuleList(Correction() for _ in task_sizes)

    @property
    def newest(self) -> Correction:
        """The correction of the last task's classes."""
        return cast(Correction, self.corrections[-1])

    @property
    def alpha(self) -> Tensor:
        """What the logits of each class are multiplied by, `[num_classes]`."""
        return self._for_each_class([cast(Correction, correction).alpha for correction in self.corrections])

    @property
    def beta(self) -> Tensor:
        """What is added to the logits of each class, `[num_classes]`."""
        return self._for_each_class([cast(Correction, correction).beta for correction in self.corrections])

    def _for_each_class(self, values: list[nn.Parameter]) -> Tensor:
        return torch.cat([value.expand(size) for value, size in zip(values, self.task_sizes, strict=True)])

    @property
    def affine(self) -> tuple[Tensor, Tensor]:
        return self.alpha[:, None] * self.weight, self.alpha * self.bias + self.beta

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.alpha + self.beta

    def grown(self, num_new: int, in_features: int | None = None) -> "BiasCorrectedHead":
        """A new head with one more task of `num_new` classes, which is not corrected yet; the rest as `Head.grown`."""
        plain = super().grown(num_new, in_features)
        head = BiasCorrectedHead(plain.in_features, (*self.task_sizes, num_new)).to(plain.weight)
        head.weight, head.bias = plain.weight, plain.bias
        for known, copied in zip(self.corrections, head.corrections, strict=False):
            copied.load_state_dict(known.state_dict())
        return head

    def regrouped(self, groups: Sequence[Sequence[int]], task_sizes: Sequence[int]) -> "BiasCorrectedHead":
        """As `Head.regrouped`; the corrections are then part of weight and bias, and 1 and 0 themselves."""
        plain = super().regrouped(groups, task_sizes)
        head = BiasCorrectedHead(plain.in_features, task_sizes).to(plain.weight)
        head.weight, head.bias = plain.weight, plain.bias
        return head
