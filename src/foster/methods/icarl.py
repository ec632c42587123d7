"""iCaRL: incremental classifier and representation learning (CVPR 2017)."""

from collections.abc import Iterator

from torch import Tensor

from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.settings.methods import IcarlSettings
from foster.training.phase import Evaluate, Phase


class Icarl(Method[IcarlSettings]):
    """Replay with distillation. Prediction is by the nearest class mean of the exemplars' features.

    The head is only used to learn features: L = L_CE over all classes + L_KD of the known ones at temperature T, on new
    images and exemplars. Class means are computed after every task, so they follow the features as these change.
    The losses use softmax, as in the public toolkits; the paper uses sigmoids.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        temperature, num_known = self.settings.temperature, task.num_known

        def loss(logits: Tensor, old_logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {
                "L_CE": cross_entropy(logits, labels),
                "L_KD": distillation(logits[:, :num_known], old_logits, temperature),
            }

        return self.learn_with_teacher(task, loss, self.settings.later, task.training)
