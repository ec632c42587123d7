"""Joint: train from scratch on all images. It is the upper bound of incremental methods."""

from collections.abc import Iterator

from foster.data.task import Task
from foster.methods.base import Method
from foster.settings.methods import JointSettings
from foster.training.phase import Evaluate, Phase


class Joint(Method[JointSettings]):
    """Keeps every image in a memory without budget. Each task trains a new network on all classes seen so far.

    The FOSTER paper (ECCV 2022) prints it as "Bound" and does not say how it was trained. Here the loss is L_CE, with
    the schedule and the augmentation of FOSTER's first task.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        with self.initialising(task):
            self.network = self.new_network([task.num_total])
        yield self.classify("learn", self.network, self.settings.first, task.training)
        self.remember(task)
