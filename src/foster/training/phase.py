"""What a method yields: a Phase is one training run inside a task, an Evaluate asks how good a network is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.errors import TrainingError
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
    """Frozen modules that the objective uses and that are not part of `network`."""
    on_epoch: Callable[[int], None] | None = None
    """Called with the number of each epoch before it starts; may fill tensors that the objective reads."""

    def __post_init__(self) -> None:
        """A method of somebody's own is told what it lacks, before anything is trained."""
        if not isinstance(self.data, ImageSet) or not len(self.data):
            raise TrainingError(f"phase '{self.name}' has no images; a memory that holds none gives None for exemplars")
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            raise TrainingError(f"phase '{self.name}' trains nothing: all parameters of its network are frozen")


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
