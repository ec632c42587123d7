"""More images of known classes and no new class: how a method without a rule of its own for this learns them."""

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


def has_own_phases(method: Method[Any], num_new: int) -> bool:
    """Whether the method's own phases are trained: always with new classes, and by some methods also without."""
    return num_new > 0 or method.settings.refreshes_by_phases


def phases_of(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """What a method does in a task, with new classes or without."""
    return method.phases(task) if has_own_phases(method, task.num_new) else refresh(method, task)


def phases_of_run(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """The same in a run, where a method that starts anew in every task, as the upper bound, always does."""
    return method.phases(task) if method.settings.starts_anew else phases_of(method, task)


def grown_sizes(method: Method[Any], sizes: Sequence[int]) -> list[int]:
    """Of tasks that brought so many new classes, those in which the method's network grew."""
    return [size for size in sizes if has_own_phases(method, size)]


def refresh(method: Method[Any], task: Task) -> Iterator[Phase | Evaluate]:
    """Fine-tune the network as it is on the new images and the exemplars, near to what it said before, and re-select.

    L = L_CE + L_KD: cross-entropy over all classes, and distillation from what it was, frozen. What is trained, the
    method says (`Method.trained_again`), whatever its last phase left frozen: everything, but for DER's old branches
    and BiC's corrections. PODNet's and COIL's old proxies are trained: here no class is newer than another.
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
