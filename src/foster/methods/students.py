"""Students: one backbone that takes up what the boosted network says."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from foster.losses import balanced_distillation, balanced_distillation_of_paper, distillation
from foster.networks.boosted import BoostedNetwork
from foster.networks.network import Network

Loss = Callable[[Tensor, Tensor], Tensor]
"""(student logits, teacher logits) -> what the student has still to learn."""


def distillation_loss(kind: str, temperature: float, weights: Tensor) -> Loss:
    """Of the `kind` that the settings choose, with the classes' weights `[C]`."""
    table: dict[str, Loss] = {
        "balanced": lambda student, teacher: balanced_distillation(student, teacher, weights, temperature),
        "paper": lambda student, teacher: balanced_distillation_of_paper(student, teacher, weights),
        "plain": lambda student, teacher: distillation(student, teacher, temperature),
    }
    return table[kind]


@torch.no_grad()
def move_towards(student: Network, boosted: Sequence[BoostedNetwork], share: float) -> None:
    """Leave the student `share` of its weights, and for the rest give it the mean of the new branches with the heads
    that see them alone.

    The statistics of its BatchNorms are mixed likewise and fit nothing; the first steps of training replace them.
    """
    branches = [Network([network.new_branch], network.new_branch_head).state_dict() for network in boosted]
    for name, value in student.state_dict().items():
        mean = torch.stack([branch[name].float() for branch in branches]).mean(0)
        value.copy_(torch.lerp(mean, value.float(), share))


def old_logits_of(old: Network) -> Callable[[Tensor], Tensor]:
    """What the frozen old network says, `[N, num_known]`, from a teacher's features, which begin with its own."""
    head, size = old.head, old.feature_size

    def logits(features: Tensor) -> Tensor:
        own: Tensor = head(features[:, :size])
        return own

    return logits
