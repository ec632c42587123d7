"""Learning with a teacher: what the methods have in common that distil the old network into the grown one."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from foster.data.images import ImageSet
from foster.data.task import Task
from foster.methods.base import Method
from foster.networks.freezing import freeze
from foster.networks.streams import both
from foster.settings.fit import FitSettings
from foster.training.phase import Phase

Loss = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
"""(logits `[N, num_total]`, old logits `[N, num_known]`, labels `[N]`) -> every loss term by its name."""


def learn_with_teacher(method: Method[Any], task: Task, loss: Loss, fit: FitSettings, data: ImageSet) -> Phase:
    """The phase `learn` of a later task: the method's network grows and learns from `data`.

    The teacher is the network as it was, frozen. It sees the same augmented images; its logits are `loss`'s old ones.
    """
    teacher = freeze(method.network)
    with method.initialising(task):
        student = method.network = teacher.with_new_classes(task.num_new)

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        old, new = both(teacher, student, images)
        return loss(new.logits, old.logits, labels)

    return Phase("learn", student, objective, fit, data, teachers=(teacher,))
