"""Fine-tune: train on the new classes only. It is the lower bound of incremental methods."""

from collections.abc import Iterator

from torch import Tensor

from foster.data.task import Task
from foster.losses import new_class_cross_entropy
from foster.methods.base import Method
from foster.settings.methods import FinetuneSettings
from foster.training.phase import Evaluate, Phase


class Finetune(Method[FinetuneSettings]):
    """Cross-entropy over the new logits, on the new images; no exemplars are kept."""

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)

    def learn(self, task: Task) -> Phase:
        network = self.grow(task)
        num_known = task.num_known

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"L_CE": new_class_cross_entropy(network(images).logits, labels, num_known)}

        return Phase("learn", network, objective, self.settings.later, task.training)
