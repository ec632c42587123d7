"""What a method yields: a Phase is one training run inside a task, an Evaluate asks how good a network is."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.networks.layout import on_host
from foster.settings.fit import FitSettings

Objective = Callable[[Tensor, Tensor], dict[str, Tensor]]
"""(normalised images, labels) -> every loss term by its name; the sum is minimised."""


@dataclass(frozen=True)
class Phase:
    """What is trained, on which images, towards what, and how.

    `objective(images, labels)` takes normalised images and returns each loss term by its name; their sum is minimised
    by the schedule `fit`. Frozen parts of `network` stay as they are.
    """

    name: str
    network: nn.Module
    objective: Objective
    fit: FitSettings
    data: ImageSet
    teachers: tuple[nn.Module, ...] = ()
    """Modules that the objective uses, that are not part of `network`, and that no gradient changes. Tensors of theirs
    that `on_epoch` changes, as those of a mean teacher, are saved and resumed with the network."""
    on_epoch: Callable[[int], None] | None = None
    """Called with the number of each epoch before it starts, and again where a phase goes on in the middle of an epoch.
    May change tensors of the teachers; any other tensor that it fills must depend on the number alone."""

    def __post_init__(self) -> None:
        """A method of somebody's own is told what it lacks, before anything is trained."""
        if not isinstance(self.data, ImageSet) or not len(self.data):
            raise TrainingError(f"phase '{self.name}' has no images; a memory that holds none gives None for exemplars")
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            raise TrainingError(f"phase '{self.name}' trains nothing: all parameters of its network are frozen")

    def teacher_tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers of the teachers, by names that are the same in every process."""
        return {
            f"{index}.{name}": tensor
            for index, teacher in enumerate(self.teachers)
            for name, tensor in (*teacher.named_parameters(), *teacher.named_buffers())
        }

    def changed_teachers(self, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the teachers' tensors that are not as they were `before`."""
        now = {name: on_host(tensor) for name, tensor in self.teacher_tensors().items()}
        return {name: tensor for name, tensor in now.items() if not _is_same(tensor, before[name])}

    @torch.no_grad()
    def restore_teachers(self, saved: Mapping[str, Tensor]) -> None:
        tensors = self.teacher_tensors()
        for name, tensor in saved.items():
            tensors[name].copy_(tensor)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, so that NaN equals NaN."""
    return one.shape == other.shape and torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8))


@dataclass(frozen=True)
class Evaluate:
    """Asks for an evaluation of `network` under the name `variant`, before the task goes on."""

    variant: str
    network: nn.Module


def parts_of(phases: Iterable[Phase | Evaluate]) -> Iterator[Phase | Evaluate]:
    """What a method's `phases` yields, one after the other; a method of somebody's own may yield something else."""
    if not isinstance(phases, Iterable):
        raise TrainingError(f"phases() must yield a Phase or an Evaluate, and returns {type(phases).__name__}")
    for part in phases:
        if not isinstance(part, Phase | Evaluate):
            raise TrainingError(f"phases() yields a Phase or an Evaluate, not {type(part).__name__}")
        yield part
