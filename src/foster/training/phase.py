"""A method yields these two. Phase: one training run within a task. Evaluate: a request for an evaluation."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from foster.data.feed import Batch
from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.networks.modules import on_host
from foster.settings.fit import FitSettings

Terms = dict[str, Tensor]
"""Every loss term by its name; the sum is minimised."""

BatchObjective = Callable[[Batch], Terms]
Objective = Callable[[Tensor, Tensor], Terms] | BatchObjective
"""(normalised images, labels) -> loss terms, or (batch) -> loss terms."""


@dataclass(frozen=True)
class Phase:
    """One training run: `network` is trained on `data` with the schedule `fit`.

    `objective(images, labels)` takes normalised images and returns a dictionary of loss terms, whose sum is minimised.
    An objective with one argument, `objective(batch)`, gets a `Batch`, which also has the index of each image. Frozen
    parts of `network` do not change.
    """

    name: str
    network: nn.Module
    objective: Objective
    fit: FitSettings
    data: ImageSet
    teachers: tuple[nn.Module, ...] = ()
    """Other modules that the objective uses. Gradients do not change them. `on_epoch` and `after_step` may change their
    tensors, as for a mean teacher; changed tensors are saved and resumed with the network."""
    on_epoch: Callable[[int], None] | None = None
    """Called with the number of each epoch before it starts, and again when a phase is resumed in the middle of an
    epoch. It may change tensors of the teachers; any other tensor that it fills must depend on the number only."""
    after_step: Callable[[], None] | None = None
    """Called without gradients after each optimizer step. It may change tensors of the network and of the teachers, in
    place. On a GPU it is recorded with the step."""
    num_views: int = 1
    """How many times each image of a batch is augmented, with different random numbers: `batch.views`."""
    replay: ImageSet | None = None
    """Images from which each step draws a second batch: `batch.replay`."""

    def __post_init__(self) -> None:
        """Raise TrainingError for a phase that cannot be trained."""
        if not isinstance(self.data, ImageSet) or not len(self.data):
            raise TrainingError(f"phase '{self.name}' has no images; exemplars are None while the memory is empty")
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            raise TrainingError(f"phase '{self.name}' trains nothing: all parameters of its network are frozen")
        if (self.num_views > 1 or self.replay is not None) and not takes_batch(self.objective):
            raise TrainingError(f"phase '{self.name}': num_views and replay need an objective(batch) of one argument")

    def teacher_tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers of the teachers, by names that are the same in every run."""
        return {
            f"{index}.{name}": tensor
            for index, teacher in enumerate(self.teachers)
            for name, tensor in (*teacher.named_parameters(), *teacher.named_buffers())
        }

    def changed_teachers(self, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the teachers' tensors that differ from those `before`."""
        now = {name: on_host(tensor) for name, tensor in self.teacher_tensors().items()}
        return {name: tensor for name, tensor in now.items() if not _is_same(tensor, before[name])}

    @torch.no_grad()
    def restore_teachers(self, saved: Mapping[str, Tensor]) -> None:
        tensors = self.teacher_tensors()
        for name, tensor in saved.items():
            tensors[name].copy_(tensor)


def takes_batch(objective: Callable[..., Any]) -> bool:
    """Whether an objective takes one argument, a batch, instead of images and labels."""
    parameters = inspect.signature(objective).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    return len(needed) == 1 and needed[0].kind is not inspect.Parameter.VAR_POSITIONAL


def of_batches(objective: Objective) -> BatchObjective:
    """The objective as a function of a batch."""
    if takes_batch(objective):
        return cast(BatchObjective, objective)
    of_images = cast(Callable[[Tensor, Tensor], Terms], objective)
    return lambda batch: of_images(batch.images, batch.labels)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, so that NaN equals NaN."""
    return one.shape == other.shape and torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8))


@dataclass(frozen=True)
class Evaluate:
    """Requests an evaluation of `network` under the name `variant`, before the task continues."""

    variant: str
    network: nn.Module
