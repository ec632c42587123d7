"""Joint: train from scratch on everything. The upper bound that shows what an incremental method could reach."""

from collections.abc import Iterator

from torch import Tensor

from foster.data.task import Task
from foster.losses import cross_entropy
from foster.methods.base import Method
from foster.settings.methods import JointSettings
from foster.training.phase import Evaluate, Phase


class Joint(Method[JointSettings]):
    """Keeps every image in a memory without budget; after each task a fresh network learns all classes seen.

    It has no paper of its own: the FOSTER paper (ECCV 2022) prints it as "Bound", without saying how it was trained.
    Here it is L_CE with the recipe of FOSTER's first task, augmentation included, from scratch after every task.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn(task)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        with self.initialising(task):
            network = self.network = self.new_network([task.num_total])

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"L_CE": cross_entropy(network(images).logits, labels)}

        return Phase("learn", network, objective, self.settings.first, task.training)
