"""WA: weight alignment, maintaining discrimination and fairness in class-incremental learning (CVPR 2020)."""

from collections.abc import Iterator

from torch import Tensor

from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.settings.methods import WaSettings
from foster.training.phase import Evaluate, Phase


class WeightAlignment(Method[WaSettings]):
    """Replay with distillation, followed by weight alignment.

    After each later task, the head's rows of new classes are multiplied by gamma = mean |w_old| / mean |w_new|, before
    exemplars are selected. The aligned network is also the next teacher. Biases do not change, and weights are not
    clipped. The loss is L_CE + 2 L_KD as in the public toolkits, or the paper's (1 - l) L_CE + l L_KD with
    l = known / total.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
        else:
            yield self.learn(task)
            self.network.align(task.num_known)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        temperature, num_known = self.settings.temperature, task.num_known
        classification_weight, distillation_weight = self.loss_weights(task)

        def loss(logits: Tensor, old_logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            known = distillation(logits[:, :num_known], old_logits, temperature)
            return {
                "L_CE": classification_weight * cross_entropy(logits, labels),
                "L_KD": distillation_weight * known,
            }

        return self.learn_with_teacher(task, loss, self.settings.later, task.training)

    def loss_weights(self, task: Task) -> tuple[float, float]:
        """The weights of L_CE and L_KD, by the setting `weighting`."""
        share = task.num_known / task.num_total
        table = {"fixed": (1.0, self.settings.distillation_weight), "share": (1 - share, share)}
        return table[self.settings.weighting]
