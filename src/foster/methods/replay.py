"""Replay: fine-tune on the new classes together with the exemplars in memory (tiny episodic memories, 2019)."""

from collections.abc import Iterator

from foster.data.task import Task
from foster.methods.base import Method
from foster.settings.methods import ReplaySettings
from foster.training.phase import Evaluate, Phase


class Replay(Method[ReplaySettings]):
    """Cross-entropy over all classes seen, on the new images and the exemplars; nothing against the imbalance.

    The baseline that every method with a memory must beat, studied by Chaudhry et al. in "On Tiny Episodic Memories in
    Continual Learning" (2019). As the field runs it on class-incremental tasks, exemplars are herded, and an epoch
    shuffles them among the new images.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        return self.classify("learn", self.grow(task), self.settings.later, task.training)
