"""Joint: train from scratch on everything. The upper bound that shows what an incremental method could reach."""

from collections.abc import Iterator

from foster.data.task import Task
from foster.methods.base import Method
from foster.settings.methods import JointSettings
from foster.training.phase import Evaluate, Phase


class Joint(Method[JointSettings]):
    """Keeps every image in a memory without budget; after each task a fresh network learns all classes seen.

    It has no paper of its own: the FOSTER paper (ECCV 2022) prints it as "Bound", without saying how it was trained.
    Here it is L_CE with the recipe of FOSTER's first task, augmentation included, from scratch after every task.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        with self.initialising(task):
            self.network = self.new_network([task.num_total])
        yield self.classify("learn", self.network, self.settings.first, task.training)
        self.remember(task)
