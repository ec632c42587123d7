"""Tasks without new classes, which have more images of known classes."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.networks.modules import both, freeze
from foster.settings.fit import FitSettings
from foster.training.phase import Evaluate, Phase

TEMPERATURE = 2.0


def trains_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the method's own phases are trained: in tasks with new classes, and for some methods also without."""
    return num_new > 0 or method.settings.refreshes_by_phases


def phases_of(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """The phases of a task, with new classes or without."""
    return method.phases(task) if trains_phases(method, task.num_new) else refresh(method, task)


def phases_of_run(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """As `phases_of`, in a run, where joint training starts from scratch in every task."""
    return method.phases(task) if method.settings.keeps_all_images else phases_of(method, task)


def grown_sizes(method: Method[Any], sizes: Sequence[int]) -> list[int]:
    """The sizes of the tasks in which the network of the method grew."""
    return [size for size in sizes if trains_phases(method, size)]


def refresh(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """Fine-tune the network on the new images and the exemplars, with distillation, and select exemplars again.

    L = L_CE + L_KD: cross-entropy over all classes, and distillation from the network before the task.
    `Method.trained_again` says what is trained: everything except DER's old branches and BiC's corrections. Old proxies
    of PODNet and COIL are trained, because no class is newer than another here.
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
    if method.settings.uses_memory or method.settings.keeps_all_images:
        method.remember(task)
