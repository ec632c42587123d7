"""Tasks without new classes: how methods learn more images of known ones."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.networks.freezing import freeze
from foster.networks.streams import both
from foster.settings.fit import FitSettings
from foster.training.phase import Evaluate, Phase

TEMPERATURE = 2.0


def trains_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the phases of the method are trained: always with new classes, and by some methods also without."""
    return num_new > 0 or method.settings.refreshes_by_phases


def phases_of(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """What a method does in a task, with new classes or without."""
    return method.phases(task) if trains_phases(method, task.num_new) else refresh(method, task)


def phases_of_run(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """The same in a run; there, joint training starts anew in every task, with new classes or without."""
    return method.phases(task) if method.settings.starts_anew else phases_of(method, task)


def grown_sizes(method: Method[Any], sizes: Sequence[int]) -> list[int]:
    """Of the `sizes` of tasks, those of the tasks in which the method's network grew."""
    return [size for size in sizes if trains_phases(method, size)]


def refresh(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """Fine-tune the network on the new images and the exemplars, with distillation, and select exemplars again.

    L = L_CE + L_KD: cross-entropy over all classes, and distillation from the network before the task. The method says
    what is trained (`Method.trained_again`): everything except DER's old branches and BiC's corrections, whatever the
    last phase left frozen. PODNet's and COIL's old proxies are trained: here no class is newer than another.
    """
    network = method.trained_again()
    teacher, method.network = freeze(method.network), network

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        old, new = both(teacher, network, images)
        return {
            "L_CE": cross_entropy(new.logits, labels),
            "L_KD": distillation(new.logits, old.logits, TEMPERATURE),
        }

    schedule: FitSettings = getattr(method.settings, "later", method.settings.first)
    yield Phase("refresh", network, objective, schedule, task.training, teachers=(teacher,))
    method.remember(task)
