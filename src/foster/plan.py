"""What a run would do, before anything is trained."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foster.config import Settings
from foster.data.catalogue import SyntheticShape, dataset_facts
from foster.data.feed import images_of_epoch
from foster.data.validation import num_held_out
from foster.method_settings import (
    BicSettings,
    CoilSettings,
    DerSettings,
    FitSettings,
    FosterSettings,
    JointSettings,
    MethodSettings,
    PodnetSettings,
)
from foster.networks import build_backbone

BYTES_OF_STATE = 16
"""float32 weight, gradient and momentum, and one copy of the weight."""


@dataclass(frozen=True)
class PlannedTask:
    """One row of a plan. `exemplars` is what the memory holds while the task is learned."""

    index: int
    num_new: int
    num_total: int
    new_images: int
    exemplars: int
    phases: tuple[tuple[str, int, int], ...]
    """Name, epochs and optimizer steps of every phase."""
    params: int


@dataclass(frozen=True)
class Plan:
    """Tasks and totals; memory in bytes."""

    settings: Settings
    tasks: tuple[PlannedTask, ...]
    total_epochs: int
    total_steps: int
    memory_images: int
    memory_bytes: int
    training_bytes: int


def make_plan(settings: Settings) -> Plan:
    """The plan of a run, from the settings and the catalogue alone: no data is read."""
    facts = dataset_facts(settings.dataset, SyntheticShape(**settings.synthetic.model_dump()))
    per_class = round(facts.num_train / facts.num_classes)
    if settings.validation_share:
        per_class -= num_held_out(per_class, settings.validation_share)
    options = settings.options.scaled(settings.epochs_scale)
    with torch.device("meta"):
        backbone = build_backbone(settings.backbone)
    backbone_params = sum(parameter.numel() for parameter in backbone.parameters())
    tasks, num_known, held = [], 0, 0
    for index, num_new in enumerate(settings.task_sizes):
        num_total = num_known + num_new
        num_images = num_new * per_class + held
        steps = -(-images_of_epoch(num_images, settings.batch_size) // settings.batch_size)
        phases = tuple((name, fit.epochs, fit.epochs * steps) for name, fit in _phases(options, index))
        branches = _num_branches(options, index)
        params = branches * backbone_params + _head_params(options, num_total, branches * backbone.feature_size, index)
        tasks.append(PlannedTask(index, num_new, num_total, num_new * per_class, held, phases, params))
        num_known, held = num_total, _held(settings, num_total, per_class)
    largest = max(task.new_images + task.exemplars for task in tasks)
    pixels = 3 * facts.image_size**2
    return Plan(
        settings=settings,
        tasks=tuple(tasks),
        total_epochs=sum(epochs for task in tasks for _, epochs, _ in task.phases),
        total_steps=sum(steps for task in tasks for _, _, steps in task.phases),
        memory_images=held,
        memory_bytes=held * pixels,
        training_bytes=2 * largest * pixels
        + tasks[-1].params * BYTES_OF_STATE
        + settings.batch_size * _activation_bytes(backbone, facts.image_size),
    )


def _phases(options: MethodSettings, index: int) -> list[tuple[str, FitSettings]]:
    """Every phase of a task by name. A method's schedules stand in its settings in the order in which they are used."""
    if index == 0 or isinstance(options, JointSettings):
        return [("learn", options.first)]
    skipped = {"first"}
    if isinstance(options, FosterSettings) and not options.compression:
        skipped.add("compress")
    schedules: dict[str, Any] = dict(options)
    names = {"later": "expand" if isinstance(options, DerSettings) else "learn", "correction": "correct"}
    return [
        (names.get(key, key), value)
        for key, value in schedules.items()
        if isinstance(value, FitSettings) and key not in skipped
    ]


def _num_branches(options: MethodSettings, index: int) -> int:
    grows = isinstance(options, DerSettings) or (isinstance(options, FosterSettings) and not options.compression)
    return index + 1 if grows else 1


def _head_params(options: MethodSettings, num_classes: int, num_features: int, index: int) -> int:
    """The weights of the head after task `index`."""
    if isinstance(options, CoilSettings | PodnetSettings):
        num_proxies = options.num_proxies if isinstance(options, PodnetSettings) else 1
        return num_classes * num_proxies * num_features + 1
    corrections = 2 * (index + 1) if isinstance(options, BicSettings) else 0
    return num_classes * (num_features + 1) + corrections


def _held(settings: Settings, num_classes: int, per_class: int) -> int:
    """How many exemplars the memory holds once `num_classes` are learned."""
    if isinstance(settings.options, JointSettings):
        return num_classes * per_class
    if not settings.options.uses_memory:
        return 0
    quota = settings.memory_per_class or (settings.memory_total or 0) // num_classes
    return num_classes * min(quota, per_class)


def _activation_bytes(backbone: nn.Module, image_size: int) -> int:
    """Bytes of all convolution and normalisation outputs for one image, as bfloat16, kept for the backward pass."""
    sizes: list[int] = []

    def measure(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        sizes.append(output.numel() * 2)

    handles = [
        module.register_forward_hook(measure)
        for module in backbone.modules()
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d)
    ]
    backbone.eval()(torch.empty(1, 3, image_size, image_size, device="meta"))
    for handle in handles:
        handle.remove()
    return sum(sizes)
