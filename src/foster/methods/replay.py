"""Replay: fine-tune on the new images and the exemplars (tiny episodic memories, 2019)."""

from collections.abc import Iterator

from foster.data.task import Task
from foster.methods.base import Method
from foster.settings.methods import ReplaySettings
from foster.training.phase import Evaluate, Phase


class Replay(Method[ReplaySettings]):
    """Cross-entropy over all classes seen so far, on the new images and the exemplars, without any correction of the
    imbalance.

    The baseline of all methods with a memory (Chaudhry et al., "On Tiny Episodic Memories in Continual Learning",
    2019). As in the public toolkits, exemplars are selected by herding and shuffled with the new images.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        return self.classify("learn", self.grow(task), self.settings.later, task.training)
