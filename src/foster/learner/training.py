"""The training inside one `learn`: a method's phases, one after the other, on the shared loop."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from foster import events
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import ranks
from foster.methods.base import Evaluate, Method
from foster.methods.refresh import refresh
from foster.training.phase import Phase
from foster.training.task_training import Save, TaskProgress, TaskTraining, Trainer


def has_own_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the method's own story is told: always with new classes, and by some methods also without."""
    return num_new > 0 or method.settings.refreshes_by_phases


class SessionResult(NamedTuple):
    """The epochs of every phase, and the accuracy of every network evaluated on the way (a mean over classes)."""

    epochs: dict[str, int]
    accuracies: dict[str, float]


@dataclass(frozen=True)
class TrainingSession:
    """The phases of a task, trained from where `progress` says, and saved on the way where there is a `save`."""

    trainer: Trainer
    progress: TaskProgress
    save: Save | None

    def run(self, method: Method[Any], task: Task, held_out: ImageSet) -> SessionResult:
        """Train all phases of a task, in place."""
        num_tasks, tell = task.index + 1, self.trainer.listener
        tell(events.TaskStarted(task.index, num_tasks, task.num_known, task.num_new, len(task.training)))
        if self.progress.phase:
            tell(events.RunResumed(task.index, self.progress.phase, self.progress.epoch))
        result = SessionResult({}, {})
        training = TaskTraining(self.trainer, task.index, num_tasks, self.progress, self.save)
        has_own = has_own_phases(method, task.num_new)
        for step in method.phases(task) if has_own else refresh(method, task):
            if isinstance(step, Phase):
                training.train(step)
                result.epochs[step.name] = step.fit.epochs
            elif len(held_out):
                result.accuracies[step.variant] = self._evaluate(step, task, held_out)
        return result

    def _evaluate(self, wanted: Evaluate, task: Task, held_out: ImageSet) -> float:
        logits = self.trainer.engine.infer(wanted.network, held_out.images).logits
        rank, labels = ranks(logits, held_out.labels).cpu(), held_out.labels
        sizes = [size for size in (task.num_known, task.num_new) if size]
        found = evaluate(rank.numpy(), labels.numpy(), sizes)
        self.trainer.listener(events.Evaluated(task.index, wanted.variant, **vars(found)))
        by_class = [float((rank[labels == label] == 0).double().mean()) for label in labels.unique().tolist()]
        return 100 * sum(by_class) / len(by_class)
