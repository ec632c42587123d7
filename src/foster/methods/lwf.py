"""LwF: learning without forgetting, by distillation on the new images only (ECCV 2016)."""

from collections.abc import Iterator

from torch import Tensor

from foster.data.task import Task
from foster.losses import distillation, new_class_cross_entropy
from foster.methods.base import Method
from foster.settings.methods import LwfSettings
from foster.training.phase import Evaluate, Phase


class LearningWithoutForgetting(Method[LwfSettings]):
    """Distillation on the new images, without exemplars.

    L = L_CE + lambda L_KD: cross-entropy over the new logits, and distillation of the old logits at temperature T. As
    in the public toolkits, there is one growing head with one softmax over all old logits, lambda = 3, T = 2, and all
    weights are trained from the start. The paper has a head for each task, lambda = 1 and a warm-up of the new head.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)

    def learn(self, task: Task) -> Phase:
        settings, num_known = self.settings, task.num_known

        def loss(logits: Tensor, old_logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            known = distillation(logits[:, :num_known], old_logits, settings.temperature)
            return {
                "L_CE": new_class_cross_entropy(logits, labels, num_known),
                "L_KD": settings.distillation_weight * known,
            }

        return self.learn_with_teacher(task, loss, settings.later, task.training)
