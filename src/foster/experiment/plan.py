"""What a run would do, before anything is trained."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foster.data.feed import images_of_epoch
from foster.data.unlabeled import num_unlabeled
from foster.data.validation import num_held_out
from foster.methods import method_class
from foster.networks import build_backbone
from foster.settings.datasets import SyntheticShape, dataset_facts
from foster.settings.experiment import Settings
from foster.settings.methods import (
    BicSettings,
    CoilSettings,
    DerSettings,
    FitSettings,
    FosterSettings,
    JointSettings,
    MethodSettings,
    PodnetSettings,
)

BYTES_OF_STATE = 16
"""float32 weight, gradient and momentum, and one copy of the weight."""


@dataclass(frozen=True)
class _Stock:
    """The images while a task is learned: `per_class` of each new class, `quota` exemplars of each known one."""

    num_known: int
    num_new: int
    per_class: int
    quota: int

    @property
    def new_images(self) -> int:
        return self.num_new * self.per_class

    @property
    def exemplars(self) -> int:
        return self.num_known * self.quota


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
        backbone = build_backbone(method_class(settings.method).backbone_name(settings.backbone))
    backbone_params = sum(parameter.numel() for parameter in backbone.parameters())
    tasks, num_known, quota = [], 0, 0
    for index, num_new in enumerate(settings.task_sizes):
        num_total = num_known + num_new
        stock = _Stock(num_known, num_new, per_class, quota)
        phases = tuple(
            (name, fit.epochs, fit.epochs * _steps_an_epoch(num_images, settings.batch_size))
            for name, fit, num_images in _phases(options, index, stock)
        )
        branches = _num_branches(options, index)
        params = branches * backbone_params + _head_params(options, num_total, branches * backbone.feature_size, index)
        tasks.append(PlannedTask(index, num_new, num_total, stock.new_images, stock.exemplars, phases, params))
        num_known, quota = num_total, _quota(settings, num_total, per_class)
    largest = max(task.new_images + task.exemplars for task in tasks) + _num_unlabeled(options)
    pixels = 3 * facts.image_size**2
    return Plan(
        settings=settings,
        tasks=tuple(tasks),
        total_epochs=sum(epochs for task in tasks for _, epochs, _ in task.phases),
        total_steps=sum(steps for task in tasks for _, _, steps in task.phases),
        memory_images=num_known * quota,
        memory_bytes=num_known * quota * pixels,
        training_bytes=2 * largest * pixels
        + tasks[-1].params * BYTES_OF_STATE
        + settings.batch_size * _activation_bytes(backbone, facts.image_size),
    )


def _steps_an_epoch(num_images: int, batch_size: int) -> int:
    return -(-images_of_epoch(num_images, batch_size) // batch_size)


def _phases(options: MethodSettings, index: int, stock: _Stock) -> list[tuple[str, FitSettings, int]]:
    """Name, schedule and number of images of every phase of a task.

    A method's schedules stand in its settings in the order in which they are used.
    """
    if index == 0 or isinstance(options, JointSettings):
        return [("learn", options.first, stock.new_images + stock.exemplars)]
    skipped = {"first"}
    if isinstance(options, FosterSettings) and not options.compression:
        skipped.add("compress")
    schedules: dict[str, Any] = dict(options)
    names = {"later": "expand" if isinstance(options, DerSettings) else "learn", "correction": "correct"}
    return [
        (names.get(key, key), value, num_images)
        for key, value in schedules.items()
        if isinstance(value, FitSettings) and key not in skipped and (num_images := _num_images(options, key, stock))
    ]


def _num_images(options: MethodSettings, schedule: str, stock: _Stock) -> int:
    """How many images the phase of this schedule trains on; without any it is left out."""
    if isinstance(options, PodnetSettings) and schedule == "finetune":
        return stock.exemplars + stock.num_new * stock.quota
    if isinstance(options, FosterSettings) and schedule == "compress":
        return stock.new_images + stock.exemplars + _num_unlabeled(options)
    num_held_out = _num_held_out(options, stock) if isinstance(options, BicSettings) else 0
    return num_held_out if schedule == "correction" else stock.new_images + stock.exemplars - num_held_out


def _num_unlabeled(options: MethodSettings) -> int:
    return num_unlabeled(options.unlabeled) if isinstance(options, FosterSettings) and options.unlabeled else 0


def _num_held_out(options: BicSettings, stock: _Stock) -> int:
    """How many images BiC keeps to correct the bias: `BiasCorrection.num_held_out`, for classes of equal size."""
    wanted = max(1, int(options.validation_share * stock.exemplars / stock.num_known))
    known, new = min(wanted, stock.quota - 1), min(wanted, stock.per_class - 1)
    return stock.num_known * known + stock.num_new * new if known > 0 and new > 0 else 0


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


def _quota(settings: Settings, num_classes: int, per_class: int) -> int:
    """How many exemplars of each class the memory holds once `num_classes` are learned."""
    if isinstance(settings.options, JointSettings):
        return per_class
    if not settings.options.uses_memory:
        return 0
    return min(per_class, settings.memory_per_class or (settings.memory_total or 0) // num_classes)


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
