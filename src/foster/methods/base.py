"""The base of methods: `phases` is a generator over one task; networks and the memory are kept between tasks."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack, digest
from foster.data.memory import ExemplarMemory, select
from foster.data.task import Task
from foster.errors import TrainingError
from foster.evaluation.predict import DryRunInference, Infer
from foster.losses import cross_entropy
from foster.networks.closed_form import ClosedFormHead
from foster.networks.heads import CosineHead, Head
from foster.networks.modules import both, freeze, unfreeze
from foster.networks.network import Backbone, Network
from foster.seeding import Address, generator, initialisation
from foster.settings.fit import FitSettings
from foster.settings.method import MethodSettings
from foster.training.phase import Evaluate, Phase

Loss = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
"""(logits `[N, num_total]`, old logits `[N, num_known]`, labels `[N]`) -> loss terms by name."""


@dataclass(frozen=True)
class Context:
    """What a run or a learner gives to a method besides its settings."""

    backbone: Callable[[], Backbone]
    """Makes a new backbone, in the form that the method needs (`Method.backbone_name`)."""
    seed: int
    infer: Infer
    device: torch.device
    selection: str = "herding"
    unlabeled: ImageSet | None = None
    normalised: Callable[[Stack], Tensor] | None = None
    """Normalises images as `infer` does."""

    @property
    def is_dry_run(self) -> bool:
        """Whether only a plan is made, with blank images."""
        return isinstance(self.infer, DryRunInference)


SettingsType = TypeVar("SettingsType", bound=MethodSettings)


class Method(Generic[SettingsType]):
    """The base of every method.

    `phases(task)` yields phases and evaluations in order; code after a `yield` runs when that phase has been trained.
    Between tasks only the network, the memory and, if it is set, the first network are kept, which `checked_phases`
    checks.
    """

    network: Network
    """The network after the last task; `phases` sets it in the first task."""
    first: Network | None = None
    """The network of the first task, if the method keeps it; `phases` sets it there."""

    def __init__(self, settings: SettingsType, memory: ExemplarMemory, context: Context) -> None:
        self.settings = settings
        self.memory = memory
        self.context = context

    @property
    def result_name(self) -> str:
        """The name of the variant that is the result; by default the name of the classifier."""
        return self.settings.classifies_by

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        """Yield the phases and evaluations of one task. Subclasses implement it."""
        raise NotImplementedError

    def new_network(self, task_sizes: Sequence[int]) -> Network:
        """An untrained network with the shape that it has after tasks of these sizes."""
        branches = [self.new_backbone() for _ in range(self.num_branches(len(task_sizes)))]
        for branch in branches[:-1]:  # only the newest is trained
            freeze(branch)
        head = self.new_head(sum(branch.feature_size for branch in branches), task_sizes)
        return Network(branches, head).to(self.context.device)

    def network_of(self, variant: str, task_sizes: Sequence[int], weights: Mapping[str, Tensor]) -> nn.Module:
        """The network of `variant` after tasks of these sizes, with these weights.

        A method overrides this if its variants have other shapes than its result.
        """
        network = self.new_network(task_sizes)
        network.load_state_dict(weights)
        return network

    def num_branches(self, num_tasks: int) -> int:
        """The number of backbones of the network after `num_tasks` tasks."""
        return 1

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> Head | CosineHead | ClosedFormHead:
        """An untrained head with the shape that it has after tasks of these sizes."""
        return Head(in_features, sum(task_sizes))

    @classmethod
    def backbone_name(cls, name: str) -> str:
        """The backbone that the method uses for the setting backbone=`name`."""
        return name

    def new_backbone(self) -> Backbone:
        return self.context.backbone()

    def initialising(self, task: Task, purpose: str = "network") -> AbstractContextManager[None]:
        """A context in which initial weights depend only on the seed, the task and the purpose."""
        return initialisation(Address(self.context.seed, f"initialise {purpose}", task.index))

    def learn_first(self, task: Task) -> Phase:
        """The first task of most methods: train a new network as `classify` does."""
        return self.classify("learn", self.grow(task), self.settings.first, task.training)

    def classify(self, name: str, network: Network, schedule: FitSettings, data: ImageSet) -> Phase:
        """A phase that trains `network` with cross-entropy over all its classes, or with the method's own loss."""

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"L_CE": cross_entropy(network(images).logits, labels)}

        return Phase(name, network, objective, schedule, data)

    def learn_with_teacher(self, task: Task, loss: Loss, schedule: FitSettings, data: ImageSet) -> Phase:
        """The phase `learn` of a later task, for methods with distillation: the network grows and is trained on `data`.

        The teacher is the frozen network before the task. It gets the same augmented images; its logits are the old
        logits of `loss`.
        """
        teacher = freeze(self.network)
        student = self.grow(task)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            old, new = both(teacher, student, images)
            return loss(new.logits, old.logits, labels)

        return Phase("learn", student, objective, schedule, data, teachers=(teacher,))

    def grow(self, task: Task) -> Network:
        """Add the task's new classes to `self.network`, or make it in the first task, and return it; all of it is
        trained."""
        with self.initialising(task):
            self.network = self.first_network(task) if task.is_first else self.network.with_new_classes(task.num_new)
        return self.network

    def first_network(self, task: Task) -> Network:
        """The untrained network of the first task."""
        return self.new_network([task.num_new])

    def trained_again(self) -> Network:
        """A copy of the network for training in a task without new classes. A method may freeze parts of it."""
        return unfreeze(copy.deepcopy(self.network))

    def batches(self, images: ImageSet, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalised images and labels on the device, in order, for gradients outside of a phase. A plan has none."""
        if self.context.is_dry_run or self.context.normalised is None:
            return
        for first in range(0, len(images), size):
            part = images.stack[first : first + size]
            yield self.context.normalised(part), images.labels[first : first + size].to(self.context.device)

    @property
    def kept_bytes(self) -> int:
        """The bytes of what is kept between tasks beside the exemplars and the weights of the network."""
        first: Iterable[Tensor] = self.first.state_dict().values() if self.first is not None else ()
        return self.network.statistics_bytes + sum(tensor.nbytes for tensor in first)

    def remember(self, task: Task, network: nn.Module | None = None) -> None:
        """Trim the memory to its quota and select exemplars of the task's classes by the features of `network`."""
        chooser = network or self.network
        self.memory.trim(task.num_total)
        chosen = select(
            lambda images: self.context.infer(chooser, images).features,
            task.candidates,
            task.class_ids,
            self.memory.quota(task.num_total),
            self.context.selection,
            generator(Address(self.context.seed, "exemplars", task.index)),
        )
        for class_id, images in chosen.items():
            self.memory.remember(class_id, images.stack, images.beside)


def checked_phases(method: Method[Any], phases: Iterable[Phase | Evaluate]) -> Iterator[Phase | Evaluate]:
    """The `phases` of `method` in a task. Raises TrainingError at the end if an attribute of the method has changed, or
    if its first network has tensors that `new_network` does not make: a run that is resumed after this task would not
    have them."""
    before, is_first = _attributes(method), "network" not in vars(method)
    title = f"method {type(method).__module__}.{type(method).__qualname__}"
    yield from phases
    for name, content in _attributes(method).items():
        if before.get(name) != content:
            raise TrainingError(
                f"{title} changes self.{name} during a task, which a resumed run would lose; "
                "keep it in a buffer of the network (register_buffer in new_network)"
            )
    if is_first and not method.network.statistics_bytes:  # a closed-form head takes the shapes of what it loads
        with initialisation(Address(method.context.seed, "frame for saved weights")):
            made = _tensors_of(method.new_network([method.network.num_classes]))
        kept = _tensors_of(method.network)
        if wrong := [name for name in (*kept, *made) if kept.get(name) != made.get(name)]:
            raise TrainingError(
                f"{title} has '{wrong[0]}' in its network, which a resumed run would lose; "
                "make it in new_network, with register_buffer and in the shape that it has after the task"
            )


def _tensors_of(network: Network) -> dict[str, Any]:
    """The shapes of the tensors that checkpoints have, and the values of plain tensors, which they do not have."""
    plain = {
        f"{path}.{name}".removeprefix("."): digest({"": value})
        for path, module in network.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    }
    return plain | {name: tensor.shape for name, tensor in network.state_dict().items()}


def _attributes(method: Method[Any]) -> dict[str, Any]:
    """The contents of a method's attributes, except its arguments, networks and memory, and cached properties."""
    given = (method, method.settings, method.memory, method.context, vars(method).get("network"), method.first)
    seen = {id(each): each for each in given if each is not None}
    kept = {name: value for name, value in vars(method).items() if id(value) not in seen}
    is_derived = {name: isinstance(getattr(type(method), name, None), cached_property) for name in kept}
    return {name: _content(value, dict(seen)) for name, value in kept.items() if not is_derived[name]}


def _content(value: Any, seen: dict[int, Any]) -> Any:
    """Plain data that can be compared in place of `value`. Objects in `seen` are not visited again."""
    if value is None or isinstance(value, str | bytes | int | float):
        return repr(value)
    if id(value) in seen:
        return "seen"
    seen[id(value)] = value
    if isinstance(value, Tensor):
        return digest({"": value})
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, nn.Module):
        return _content(value.state_dict(), seen)
    if isinstance(value, Mapping):
        return [(repr(key), _content(item, seen)) for key, item in value.items()]
    if isinstance(value, Collection):
        return [_content(item, seen) for item in value]
    if hasattr(value, "__dict__") and not callable(value):
        return type(value), _content(vars(value), seen)
    return id(value)
