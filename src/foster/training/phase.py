"""What a method yields: a Phase is one training run inside a task, an Evaluate asks how good a network is."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.settings.fit import FitSettings

Objective = Callable[[Tensor, Tensor], dict[str, Tensor]]
"""(normalised images, labels) -> every loss term by its name; the sum is minimised."""


@dataclass(frozen=True)
class Phase:
    """What is trained, on which images, towards what, and how."""

    name: str
    network: nn.Module
    objective: Objective
    fit: FitSettings
    data: ImageSet
    teachers: tuple[nn.Module, ...] = ()
    """Frozen modules that the objective uses and that are not part of `network`."""
    on_epoch: Callable[[int], None] | None = None
    """Called with the number of each epoch before it starts; may fill tensors that the objective reads."""


@dataclass(frozen=True)
class Evaluate:
    """Asks for an evaluation of `network` under the name `variant`, before the task goes on."""

    variant: str
    network: nn.Module
