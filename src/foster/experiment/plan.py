"""Plans: a dry run of the method's phases on blank images, and an estimate of memory and time."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from foster.data.feed import images_of_epoch
from foster.data.images import ImageSet, as_stack
from foster.data.photos.stack import num_strata
from foster.data.photos.store import typical_photo_bytes
from foster.data.scenario import num_held_out
from foster.data.task import Task
from foster.errors import DataError
from foster.evaluation.predict import DryRunInference
from foster.experiment.engine import build_engine, describe_environment, engine_settings
from foster.experiment.first_task import check_phases, first_task
from foster.experiment.parts import build_loader, chosen_backbone, image_side, method_at, surveyed_facts
from foster.methods.base import Context, Method, checked_phases
from foster.methods.refresh import phases_of_run
from foster.networks.modules import evaluating
from foster.networks.network import Output
from foster.settings.datasets import CATALOGUE, DatasetFacts
from foster.settings.experiment import Settings
from foster.system.counts import duration, size_text
from foster.system.output import plain_text
from foster.training.engine import Engine
from foster.training.optim import BYTES_WITHOUT_STATE, bytes_of_parameter
from foster.training.phase import Phase
from foster.training.task import seconds_an_epoch

if TYPE_CHECKING:
    from rich.console import Group

BATCHES_OF_PHOTOS = 24
"""Batches of images, in bytes, that exist at the same time while photos are cropped and augmented."""

TYPICAL_FILE_BYTES = 110_000
"""Typical size of an encoded photo in ImageNet."""

COPIES_OF_STATISTICS = 4
"""Copies of the statistics of a closed-form head: before and after a task, and while solving."""


PLACES_OF_PHOTOS = {
    "device": "stay on the device",
    "host": "stay in the host's memory and are sent batch by batch",
    "disk": "stay on disk (engine.photo_cache) and are sent batch by batch",
    "nowhere": "fit nowhere: set engine.photo_cache=FOLDER, or choose a smaller photos.short_side",
}

STEPS_AN_EPOCH = {"cpu": 1, "cuda": 50}
"""Steps of the short epochs that are timed, by device."""


class PlannedPhase(NamedTuple):
    """The epochs of a phase, and the optimizer steps of all of them."""

    name: str
    epochs: int
    steps: int


@dataclass(frozen=True)
class PlannedTask:
    """One row of a plan. `exemplars` is the number of images in the memory during the task."""

    index: int
    num_new: int
    num_total: int
    new_images: int
    exemplars: int
    phases: tuple[PlannedPhase, ...]
    params: int

    @property
    def num_steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated time of all tasks, and where the estimate comes from."""

    seconds: float
    steps_a_second: float
    source: str


@dataclass(frozen=True, repr=False)
class Plan:
    """The plan of a run: its `tasks`, `total_epochs` and `total_steps`; the images that are kept between tasks
    (`memory_images`), and the bytes of these and of statistics (`memory_bytes`); estimates of the memory of training
    (`training_bytes`) and, if it is known, of the `time`."""

    settings: Settings
    facts: DatasetFacts
    tasks: tuple[PlannedTask, ...]
    total_epochs: int
    total_steps: int
    memory_images: int
    memory_bytes: int
    training_bytes: int
    photos: str = ""
    """Where photos of many sizes are kept decoded, device, host or disk; empty for images of one size."""
    photo_bytes: int = 0
    """Bytes of the decoded photos of the largest task and of all test photos."""
    time: TimeEstimate | None = None

    def __repr__(self) -> str:
        return plain_text(self.table()).rstrip()

    def table(self) -> "Group":
        """For a terminal: settings in a line, a row for each task, and the totals."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        settings = self.settings
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for name in ("task", "new", "classes", "images", "exemplars", "epochs", "steps", "parameters"):
            table.add_column(name, justify="right", no_wrap=True)
        for task in self.tasks:
            is_taken_over = task.index == 0 and settings.first_task_from
            epochs = " + ".join(f"{phase.epochs} {phase.name}" for phase in task.phases)
            table.add_row(
                str(task.index + 1),
                f"+{task.num_new}",
                str(task.num_total),
                f"{task.new_images:,}",
                f"{task.exemplars:,}",
                epochs or ("taken over" if is_taken_over else "none"),
                f"{task.num_steps:,}",
                f"{task.params:,}",
            )
        first = (
            f"{settings.scenario}: method {settings.method}, backbone {settings.backbone}, "
            f"batch {settings.batch_size}, augmentation {settings.augmentation_name}, seed {settings.seed}"
        )
        return Group(Text(first, style="bold"), "", table, "", *map(Text, self._totals()))

    def _totals(self) -> Iterator[str]:
        yield (
            f"in all: {self.total_epochs:,} epochs, {self.total_steps:,} steps; "
            f"at the end {self.memory_images:,} exemplars, {size_text(self.memory_bytes)} kept between tasks"
        )
        yield f"estimated memory while training: {size_text(self.training_bytes)}, and what torch itself needs"
        if self.facts.num_train % self.facts.num_classes:
            yield "images: computed from the mean over classes, whose sizes differ"
        if self.photos:
            size = f"{size_text(self.photo_bytes)} of decoded photos"
            yield f"photos: the largest task and the test have about {size}, which {PLACES_OF_PHOTOS[self.photos]}"
        if self.time is None:
            yield "estimated time: not known; 'foster plan --measure' times a few steps"
        else:
            pace = f"{self.time.steps_a_second:,.1f} steps a second"
            yield f"estimated time of the steps: {duration(self.time.seconds)}, at {pace} ({self.time.source})"
            exemplars = ", the choice of exemplars" if self.memory_images else ""
            heads = "" if all(task.phases for task in self.tasks[1:]) else ", computing the heads"
            yield f"not included: evaluation{exemplars}{heads}"


def make_plan(
    settings: Settings,
    look_at: Callable[[Task, Phase], None] = lambda task, phase: None,
    device: torch.device = torch.device("cpu"),  # noqa: B008 (a device is a constant)
) -> Plan:
    """The plan of a run, from the settings and the catalogue alone: no data is read, and nothing is trained.

    `look_at` is called with every phase when it would be trained. The networks are made on `device`.
    """
    first_task(settings)
    facts = surveyed_facts(settings)
    per_class, num_test = round(facts.num_train / facts.num_classes), facts.num_test
    if settings.validation_share:
        held_out = partial(num_held_out, share=settings.validation_share)
        counts_left = tuple(tuple(count - held_out(count) for count in counts) for counts in facts.tasks)
        is_given = settings.tasks == "given"
        num_test = facts.num_train - sum(map(sum, counts_left)) if is_given else facts.num_classes * held_out(per_class)
        per_class, facts = per_class - held_out(per_class), replace(facts, tasks=counts_left)
    state_bytes: list[int] = []
    """Bytes of optimizer state of a parameter, in each phase."""

    def look(task: Task, phase: Phase) -> None:
        state_bytes.append(bytes_of_parameter(phase.fit))
        look_at(task, phase)

    source = CATALOGUE.get(settings.options.unlabeled_source)
    unlabeled = ImageSet(_blank(source.num_train), torch.full((source.num_train,), -1), ()) if source else None
    with torch.random.fork_rng(devices=[]):
        method = idle_method(settings, unlabeled, device)
        tasks = [_planned_task(method, task, settings, look) for task in _tasks(facts, settings, method, per_class)]
        activation_bytes = _activation_bytes(method.new_backbone(), facts.image_size)
    largest = max(task.new_images + task.exemplars for task in tasks) + (len(unlabeled) if unlabeled else 0)
    statistics_bytes = method.network.statistics_bytes
    image_bytes = 3 * facts.image_size**2
    if facts.photo_augmentations:
        photo_bytes = (largest + num_test) * typical_photo_bytes(settings.photos.kept_side)
        place_of_photos = _place_of_photos(settings, photo_bytes)
        on_device = photo_bytes if place_of_photos == "device" else 0
        data_bytes = on_device + BATCHES_OF_PHOTOS * settings.batch_size * image_bytes
        exemplar_bytes = TYPICAL_FILE_BYTES
    else:
        photo_bytes, place_of_photos = 0, ""
        data_bytes = 2 * largest * image_bytes  # the images, and those of an epoch
        exemplar_bytes = image_bytes
    return Plan(
        settings=settings,
        facts=facts,
        tasks=tuple(tasks),
        total_epochs=sum(phase.epochs for task in tasks for phase in task.phases),
        total_steps=sum(task.num_steps for task in tasks),
        memory_images=method.memory.num_images,
        memory_bytes=method.memory.num_images * exemplar_bytes + method.kept_bytes,
        photos=place_of_photos,
        photo_bytes=photo_bytes,
        training_bytes=data_bytes
        + tasks[-1].params * max(state_bytes, default=BYTES_WITHOUT_STATE)
        + settings.batch_size * activation_bytes
        + COPIES_OF_STATISTICS * statistics_bytes,
    )


def idle_method(
    settings: Settings,
    unlabeled: ImageSet | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008 (a device is a constant)
) -> Method[Any]:
    """The method of a run for a dry run: it sees no images and loads no weights."""
    # Which images are remembered makes no difference here, and choosing them at random takes no features.
    backbone = chosen_backbone(settings, is_trained=True).make
    infer = DryRunInference(partial(_of_blank, image_size=image_side(settings)))
    return method_at(settings, Context(backbone, settings.seed, infer, device, "random", unlabeled))


def _place_of_photos(settings: Settings, num_bytes: int) -> str:
    """Where a run would keep this many bytes of photos."""
    try:
        return build_loader(settings).choose(num_bytes)
    except DataError:
        return "nowhere"


def _tasks(facts: DatasetFacts, settings: Settings, method: Method[Any], per_class: int) -> Iterator[Task]:
    """The tasks of the run with blank images, and the exemplars that the method holds at that point."""
    num_known = 0
    for index, num_new in enumerate(settings.sizes_of_tasks(facts)):
        is_given = settings.tasks == "given"
        counts = facts.tasks[index] if is_given else [0] * num_known + [per_class] * num_new
        labels = torch.arange(num_known + num_new).repeat_interleave(torch.tensor(counts))
        names = tuple(map(str, range(num_known + num_new)))
        new_images = ImageSet(_blank(len(labels)), labels, names)
        yield Task(index, num_known, num_new, new_images, method.memory.exemplars(names))
        num_known += num_new


def _planned_task(
    method: Method[Any], task: Task, settings: Settings, look_at: Callable[[Task, Phase], None]
) -> PlannedTask:
    """The phases of `task`; afterwards the method has the network and exemplars that it would have in a run."""
    phases = []
    for phase in checked_phases(method, phases_of_run(method, task)):
        if isinstance(phase, Phase):
            look_at(task, phase)
            num_images = len(phase.data)
            if settings.facts.photo_augmentations:  # every stratum gives as many photos
                num_images -= num_images % num_strata(num_images, settings.batch_size)
            num_images = images_of_epoch(num_images, settings.batch_size, settings.fewest_in_a_batch)
            steps = -(-num_images // settings.batch_size)
            phases.append(PlannedPhase(phase.name, phase.fit.epochs, phase.fit.epochs * steps))
    if task.is_first and settings.first_task_from:
        check_phases(settings, len(phases))
        phases.clear()
    num_exemplars = len(task.exemplars) if task.exemplars else 0
    return PlannedTask(
        task.index,
        task.num_new,
        task.num_total,
        len(task.new_images),
        num_exemplars,
        tuple(phases),
        method.network.num_parameters(),
    )


def _blank(count: int) -> Tensor:
    """`count` blank images of one pixel that share their memory."""
    return torch.zeros(1, 3, 1, 1, dtype=torch.uint8).expand(count, -1, -1, -1)


def _of_blank(network: nn.Module, image_size: int) -> Output:
    """The output of a network for one blank image, in eval mode."""
    device = next(network.parameters()).device
    with evaluating(network):
        out: Output = network(torch.zeros(1, 3, image_size, image_size, device=device))
    return out


def _activation_bytes(backbone: nn.Module, image_size: int) -> int:
    """Bytes of all convolution and normalisation outputs for one image, as bfloat16, kept for the backward pass."""
    sizes: list[int] = []

    def measure(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        sizes.append(output.numel() * 2)

    for module in backbone.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
            module.register_forward_hook(measure)
    with torch.no_grad():
        backbone.eval()(torch.zeros(1, 3, image_size, image_size))
    return sum(sizes)


def measured_plan(settings: Settings) -> Plan:
    """The plan with an estimate of its time: a few steps of each phase are timed in the first two tasks and the last.

    Evaluation and the choice of exemplars are not included.
    """
    facts = surveyed_facts(settings)
    computing = engine_settings(settings.engine, chosen_backbone(settings, is_trained=True).is_builtin)
    engine = build_engine(computing, settings.device, facts.mean, facts.std)
    last = len(settings.sizes_of_tasks(facts)) - 1
    paces: dict[str, dict[int, float]] = defaultdict(dict)

    def look_at(task: Task, phase: Phase) -> None:
        if task.index in (0, 1, last) or phase.name not in paces:
            paces[phase.name][task.index] = _seconds_a_step(phase, task.index, settings, engine, facts.image_size)

    plan = make_plan(settings, look_at, engine.device)
    seconds = sum(
        phase.steps * float(np.interp(task.index, list(paces[phase.name]), list(paces[phase.name].values())))
        for task in plan.tasks
        for phase in task.phases
    )
    device = describe_environment(engine)["device"]
    pace = plan.total_steps / seconds if seconds else 0.0  # without a trained phase there is no step
    return replace(plan, time=TimeEstimate(seconds, pace, f"steps made now on {device}"))


def _seconds_a_step(phase: Phase, task: int, settings: Settings, engine: Engine, image_size: int) -> float:
    """The time of one step of the phase, on random images."""
    most = STEPS_AN_EPOCH[engine.device.type] * settings.batch_size

    def noise(images: ImageSet) -> ImageSet:
        count = min(most, len(images))
        pixels = torch.randint(256, (count, 3, image_size, image_size), dtype=torch.uint8)
        return replace(images.select(torch.arange(count) * len(images) // count), stack=as_stack(pixels))

    data = noise(phase.data)
    phase = replace(phase, replay=noise(phase.replay) if phase.replay else None)
    seconds = seconds_an_epoch(phase, data, task, engine, settings.augmentation_settings, settings.batch_size)
    return seconds / -(-len(data) // settings.batch_size)
