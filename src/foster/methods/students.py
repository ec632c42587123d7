"""Students: one network that takes up what its teacher says, on images that the settings choose and mix."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from foster.data.augmentation.mixing import cutmix, mixed
from foster.data.images import ImageSet, concatenate
from foster.data.task import Task
from foster.losses import (
    balanced_distillation,
    balanced_distillation_of_paper,
    decoupled_distillation,
    distillation,
)
from foster.networks.boosted import BoostedNetwork, BoostedOutput
from foster.networks.freezing import freeze
from foster.networks.network import Network, Output
from foster.settings.fit import FitSettings
from foster.settings.students import StudentSettings
from foster.system.streams import both
from foster.training.phase import Phase

Loss = Callable[[Tensor, Tensor], Tensor]
"""(student logits, teacher logits) -> what the student has still to learn."""


def distil(
    name: str,
    teacher: BoostedNetwork | Network,
    student: Network,
    terms: Callable[[Output, Output | BoostedOutput], dict[str, Tensor]],
    settings: StudentSettings,
    fit: FitSettings,
    data: ImageSet,
) -> Phase:
    """The phase in which the student learns `terms` of its own and its teacher's output; both see the same mix."""
    freeze(teacher)
    is_mixed = torch.ones((), device=next(student.parameters()).device)
    cut_share, blend_share = settings.compress_cutmix, settings.compress_mixup
    num_mixed = round(fit.epochs * (1 - settings.compress_unmixed))

    def mix(images: Tensor) -> Tensor:
        if blend_share:
            return mixed(images, cut_share * is_mixed, blend_share * is_mixed)
        return cutmix(images, cut_share * is_mixed) if cut_share else images

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        teacher_out, student_out = both(teacher, student, mix(images))
        return terms(student_out, teacher_out)

    def begin(epoch: int) -> None:
        is_mixed.fill_(epoch < num_mixed)

    return Phase(name, student, objective, fit, data, teachers=(teacher,), on_epoch=begin)


def distillation_loss(settings: StudentSettings, temperature: float, weights: Tensor) -> Loss:
    """As the settings choose it, with the classes' weights `[C]`. `temperature` is the method's; where compression has
    its own, gradients keep their size, and the weights mean what they meant: the same number added to a class's logits.
    """
    own = settings.compress_temperature or temperature
    weights = weights ** (temperature / own)
    table: dict[str, Loss] = {
        "balanced": lambda student, teacher: balanced_distillation(student, teacher, weights, own),
        "paper": lambda student, teacher: balanced_distillation_of_paper(student, teacher, weights),
        "plain": lambda student, teacher: distillation(student, teacher, own),
        "decoupled": lambda student, teacher: decoupled_distillation(
            student, teacher, weights, own, settings.others_weight
        ),
    }
    loss, scale = table[settings.compress_with], (own / temperature) ** 2
    return loss if scale == 1 else lambda student, teacher: scale * loss(student, teacher)


def compression_data(settings: StudentSettings, task: Task, unlabeled: ImageSet | None) -> ImageSet:
    """The task's images, its exemplars as often as the settings say, and those without labels."""
    data = task.training
    for _ in range(settings.compress_repeats - 1):
        data = data if task.exemplars is None else concatenate(data, task.exemplars)
    return data if unlabeled is None else concatenate(data, unlabeled)


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
