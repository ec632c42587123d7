"""A `learn` whose network is trained: what is decided first, how long it takes, the phases, and what came of them."""

import copy
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median_low
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from foster import events
from foster.bundle.manifest import Preprocessing
from foster.data.download import Follower
from foster.data.herding import positions_by_class
from foster.data.images import (
    ImageSet,
    Stack,
    as_stack,
    concatenate,
    digest,
    ids_of,
    images_digest,
    on_device,
    tensors_of,
)
from foster.data.memory import BorrowedMemory, ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.data.photos.find import Photos, item_name, some
from foster.data.photos.read import learner_loader, read_for_training, stack_for_learner
from foster.data.task import Task
from foster.data.unlabeled import load_unlabeled
from foster.errors import DataError, SettingsError
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import Nothing, ranks
from foster.experiment.parts import build_engine, engine_settings, place_for_photos
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier
from foster.learner.familiarity import Familiarity
from foster.learner.features import FeatureStore, linear_discriminants, stored_features
from foster.learner.knowledge import Change, Knowledge, Memories, no_images
from foster.learner.look import (
    BYTES_OF_PROCESS,
    NUM_SHOWN,
    Chosen,
    Entry,
    Request,
    entries_of,
    fair_quota,
    held_out_quota,
    kept_elsewhere,
    shared_photos,
)
from foster.learner.reports import CLOSED_FORM_VARIANT, Inventory, LearnReport
from foster.learner.update_check import UpdateCheck, compare, problem
from foster.learner.work_folder import WorkFolder
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.methods.refresh import has_own_phases, phases_of
from foster.networks.adapted import BackboneChoice, check_backbone
from foster.networks.heads import RootHead
from foster.networks.network import Backbone, Network
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.learner import LearnerSettings
from foster.settings.learner_defaults import augmentation_for, batch_size_for
from foster.settings.method import MethodSettings
from foster.system.counts import counted
from foster.training.engine import Engine, find_device
from foster.training.memory_errors import explained_memory_errors
from foster.training.optim import bytes_of_parameter
from foster.training.phase import Evaluate, Phase
from foster.training.task import TaskState, Trainer, seconds_an_epoch

MIN_IMAGES = 2
"""One image alone has no statistics to normalise it by."""

SMALLEST_STD = 0.01
NUM_IMAGES_FOR_STATISTICS = 10_000
MANY_STEPS = 5000
"""From so many steps a phase on, searching and compiling a GPU's fastest convolutions takes less than it gives."""


def learn_by_training(request: Request, chosen: Chosen, began: float) -> Change[LearnReport]:
    """Learn the classes of the photos by the phases of a method."""
    listener = request.listener
    with explained_memory_errors(find_device(request.settings.device)):
        plan = make_plan(request, chosen)
    if plan.num_training_images < MIN_IMAGES:
        raise DataError(f"one image is too little to learn from; give {MIN_IMAGES} or more (in {request.photos.title})")
    if request.max_drop is not None and plan.uncompared:
        names = plan.uncompared
        what = f"class '{names[0]}'" if len(names) == 1 else f"{len(names)} known classes, such as '{names[0]}',"
        request.warn(
            f"there is no image of {what} to compare before and after: max_drop does not protect what is not compared"
        )
    engine = _engine(plan)
    with explained_memory_errors(engine.device, plan.batch_size):
        method = _method(plan, engine)
        intake = plan.intake
        exemplars = method.memory.exemplars(intake.class_names)
        task = Task(len(plan.task_sizes), intake.num_known, intake.num_new, intake.train, exemplars)
        if request.asked or request.minutes is not None:
            plan, method, ahead = _foreseen(plan, method, task, engine, request.minutes, request.work)
            listener(events.LearnPlanned(plan.lines(), ahead.seconds, ahead.num_bytes))
            listener = LearnClock(listener, ahead)
        trained, earlier_seconds = _train(request, plan, method, task, engine, listener)
        after, report = outcome(plan, method, trained, engine, request.photos.title, began - earlier_seconds)
    # A schedule that was fitted to a time is that of this learn alone.
    resolved = plan.resolved().model_copy(update={"epochs_scale": request.settings.epochs_scale})
    limit = request.max_drop
    lost = None if limit is None else problem(report.checks, limit)
    return Change(after, report, lost, resolved)


@dataclass(frozen=True, eq=False)
class Intake:
    """The images of one `learn`, with ids for all classes known afterwards."""

    train: ImageSet
    held_out: ImageSet
    num_known: int
    num_new: int
    inventory: Inventory
    trained_from: Mapping[str, float]
    """For each class of this `learn`, the smallest position of its images in `train`."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is decided before anything is trained."""

    before: Knowledge | None
    settings: LearnerSettings
    backbone: BackboneChoice
    preprocessing: Preprocessing
    intake: Intake
    unlabeled: ImageSet | None
    untrained: Knowledge | None = None
    """What is known in closed form, where this is the first learn that trains; its photos are among the new ones."""

    @cached_property
    def exemplars_before(self) -> ImageSet:
        """What the memory holds of the known classes."""
        return self.before.images_of(self.before.exemplars) if self.before else self._none

    @cached_property
    def held_out(self) -> ImageSet:
        """All images that were never trained on: those of this `learn` and those kept from earlier ones."""
        kept = self.before.images_of(self.before.held_out) if self.before else self._none
        return concatenate(self.intake.held_out, kept)

    @cached_property
    def uncompared(self) -> tuple[str, ...]:
        """The known classes of which there is no image, so that nobody can say what they lose."""
        seen = {*self.held_out.labels.tolist(), *self.exemplars_before.labels.tolist()}
        names = self.before.class_names if self.before else ()
        return tuple(name for k, name in enumerate(names) if k not in seen)

    @property
    def _none(self) -> ImageSet:
        return no_images(self.preprocessing.size, ())

    @property
    def num_training_images(self) -> int:
        return len(self.intake.train) + len(self.exemplars_before)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size or batch_size_for(self.num_training_images, self.preprocessing.size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_training_images // self.batch_size)

    @property
    def options(self) -> MethodSettings:
        """The method's settings as they are used."""
        return self.settings.scaled_options(self.steps_per_epoch, self.backbone.is_pretrained, self.batch_size)

    @property
    def is_short(self) -> bool:
        """Whether the training is over before a search for its fastest code would pay."""
        return self.options.first.epochs * self.steps_per_epoch < MANY_STEPS

    def within(self, seconds: float, seconds_beside: float, seconds_of_training: float) -> "Plan":
        """The same plan with schedules that take `seconds` in all, where the training as planned takes
        `seconds_of_training` and all else `seconds_beside`; never longer than the published ones."""
        factor = self.settings.epochs_factor(self.steps_per_epoch, self.backbone.is_pretrained)
        share = max(0.0, seconds - seconds_beside) / max(seconds_of_training, 1e-6)
        return self.with_epochs_scale(round(min(1.0, max(1e-4, factor * share)), 4))

    def with_epochs_scale(self, scale: float) -> "Plan":
        return replace(self, settings=self.settings.model_copy(update={"epochs_scale": scale}))

    def lines(self) -> tuple[str, ...]:
        """What is about to be done, for people."""
        intake, size = self.intake, self.preprocessing
        new = intake.class_names[intake.num_known :]
        photos = f"{counted(len(intake.train), 'photo')}, {len(intake.held_out):,} more held out to measure"
        known = (
            f"; {counted(len(self.exemplars_before), 'kept photo')} of {counted(intake.num_known, 'known class')}"
            if intake.num_known
            else ""
        )
        start = "pretrained" if self.backbone.is_pretrained else "from scratch"
        what = f"{counted(len(new), 'new class')} ({some(new, NUM_SHOWN)})" if new else "no new class"
        network = f"{self.backbone.name} ({start}), images of {size.height} x {size.width} for the bundle's life"
        return f"{what}: {photos}{known}", f"{network}; trained by {self.settings.method}"

    @property
    def augmentation(self) -> Augmentation:
        return augmentation_of(self.settings, self.preprocessing.size)

    @cached_property
    def quota(self) -> int | None:
        """How many images each class may keep; what a small class cannot fill of it, others do."""
        num_classes = self.intake.num_known + self.intake.num_new
        quota = self.settings.quota(num_classes)
        if quota is None or self.settings.memory_per_class is not None:
            return quota
        sets = (concatenate(self.intake.train, self.exemplars_before), self.held_out)
        trained, held_out = (images.class_counts(num_classes).tolist() for images in sets)
        return fair_quota(self.settings.memory_budget, trained, held_out, self._kept_share)

    @property
    def _kept_share(self) -> float:
        """A `learn` that holds out nothing still keeps what earlier ones held out, within the share of then."""
        return self.settings.held_out_share or (self.before.held_out_share if self.before else 0.0)

    @property
    def held_out_quota(self) -> int | None:
        return held_out_quota(self.quota, self._kept_share)

    @property
    def exemplar_quota(self) -> int | None:
        """What is left of a class's quota for images that are trained on again."""
        return None if self.quota is None else self.quota - (self.held_out_quota or 0)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return self.before.task_sizes if self.before else ()

    def resolved(self) -> LearnerSettings:
        """The settings with what the first `learn` decides for good."""
        return self.settings.model_copy(
            update={
                "backbone": self.backbone.name,
                "image_size": self.preprocessing.size,
                "resize": self.preprocessing.rule,
            }
        )


def augmentation_of(settings: LearnerSettings, image_size: tuple[int, int]) -> Augmentation:
    """What is done to images of this height and width."""
    by_size = augmentation_for(image_size, settings.training)
    wanted = by_size if settings.augmentation == "by_size" else settings.augmentation
    return wanted if isinstance(wanted, Augmentation) else AUGMENTATIONS[wanted]


def make_plan(request: Request, chosen: Chosen) -> Plan:
    """Read the photos and decide everything. Wrong settings are found before the photos are read."""
    before, resizing, choice = request.before, chosen.resizing, chosen.backbone
    settings = request.settings.model_copy(update={"method": chosen.method})
    untrained = before if before is not None and before.is_closed_form else None
    if untrained is not None:  # its backbone is still as it was pretrained
        backbone = untrained.network.branches[0]
        choice = replace(choice, make=lambda: cast(Backbone, copy.deepcopy(backbone)))
    _check(None if untrained else before, settings, request.photos, resizing, choice)
    unlabeled = _unlabeled(settings, resizing, Follower(request.listener, request.stop))
    intake = take_in(request.photos, resizing, settings, before)
    if untrained is not None:
        intake, before = _with_kept_photos(intake, untrained), None
    if len(intake.class_names) == 1:
        only = intake.class_names[0]
        request.warn(f"every photo will be taken for '{only}': a second class is needed to tell it from")
    if before is not None or untrained is not None:
        preprocessing = (before or untrained).preprocessing  # type: ignore[union-attr]
    else:
        mean, std = (choice.mean, choice.std) if choice.mean and choice.std else statistics(intake.train.stack)
        preprocessing = Preprocessing.model_validate({**vars(resizing), "mean": mean, "std": std})
    return Plan(before, settings, choice, preprocessing, intake, unlabeled, untrained)


def take_in(photos: Photos, resizing: Resizing, settings: LearnerSettings, knowledge: Knowledge | None) -> Intake:
    """Read all photos; leave out what is already stored; hold out a part of every class."""
    place, folder = place_for_photos(settings.engine)
    loader = learner_loader(resizing, find_device(settings.device), place, folder, settings.max_unreadable)
    read = read_for_training(photos, resizing, loader)
    known = knowledge.class_names if knowledge else ()
    readable = set(read.labels)
    names = (*known, *(name for name in photos.class_names if name in readable and name not in known))
    ids = {name: k for k, name in enumerate(names)}
    images = ImageSet(read.stack, torch.tensor([ids[name] for name in read.labels]), names)
    entries = [Entry(*entry) for entry in zip(images.labels.tolist(), ids_of(images.stack), strict=True)]
    stored = entries_of(knowledge.held_out) | entries_of(knowledge.exemplars) if knowledge else set()
    is_fresh = torch.tensor([entry not in stored for entry in entries])
    fresh = images.select(is_fresh)
    if not len(fresh):
        raise DataError(f"all {len(images)} images in {photos.title} are kept from earlier learns: nothing to learn")
    fresh_entries = [entry for entry in entries if entry not in stored]
    hashes = [entry.image_hash for entry in fresh_entries]
    trained_before = dict(enumerate(knowledge.trained_from.values())) if knowledge else {}
    mask = is_held_out(fresh, hashes, settings.held_out_share, trained_before)
    train = fresh.select(~mask)
    elsewhere = kept_elsewhere(fresh_entries, stored, names)
    again = Counter(names[label] for label in fresh.labels.tolist() if label < len(known))
    inventory = Inventory(
        more_of=dict(again),
        num_repeated=len(images) - len(fresh),
        kept_elsewhere=elsewhere,
        shared=shared_photos(entries, names, [item_name(photos.items[k], k) for k in read.positions]),
        empty_classes=(*photos.empty_classes, *(name for name in photos.class_names if name not in readable)),
        passed_over=photos.passed_over,
        unreadable=read.unreadable,
    )
    held_out = fresh.select(mask)
    # Encoded as a bundle keeps them: whoever loads the bundle measures the same.
    held_out = replace(held_out, stack=held_out.stack.owned())
    smallest: dict[str, float] = {}
    for label, image_hash, is_spared in zip(fresh.labels.tolist(), hashes, mask.tolist(), strict=True):
        if not is_spared:
            smallest[names[label]] = min(smallest.get(names[label], 1.0), position(image_hash))
    return Intake(train, held_out, len(known), len(names) - len(known), inventory, smallest)


FEWEST_IMAGES = 3
"""A class with fewer images holds none out."""


def position(image_hash: str) -> float:
    """Where a picture stands between 0 and 1 by the hash of its pixels: it keeps this position for life."""
    return int(image_hash, 16) / 16.0 ** len(image_hash)


def is_held_out(
    images: ImageSet, ids: Sequence[str], share: float, trained_from: Mapping[int, float] = MappingProxyType({})
) -> Tensor:
    """A mask `[N]`. Of a new class about `share` is held out, at least one image of three or more and never all.

    The choice goes by the hash of the pixels, lowest first: it does not depend on file names, and equal pictures always
    stand on the same side. One that lies in several classes is held out where all of them choose it. `trained_from` has
    the smallest position that was trained on, for every class known before: only pictures below it, and below `share`,
    are held out, so that a photo that comes again is never measured on once it was trained on.
    """
    members: dict[int, set[str]] = defaultdict(set)
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        members[label].add(image_hash)
    trained: set[str] = set()
    for label, hashes in members.items():
        count = max(1, round(len(hashes) * share)) if share and len(hashes) >= FEWEST_IMAGES else 0
        if count and label in trained_from:
            limit = min(share, trained_from[label])
            count = sum(position(image_hash) < limit for image_hash in hashes)
        trained |= set(sorted(hashes)[min(count, len(hashes) - 1) :])
    return torch.tensor([image_hash not in trained for image_hash in ids], dtype=torch.bool)


def kept_held_out(images: ImageSet, quota: int | None) -> ExemplarMemory:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    memory, ids = ExemplarMemory(), ids_of(images.stack)
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        by_hash = {ids[position]: position for position in positions.tolist()}
        chosen = [by_hash[entry] for entry in sorted(by_hash)][:quota]
        memory.remember(class_id, images.stack[torch.tensor(chosen, dtype=torch.int64)])
    return memory


def _with_kept_photos(intake: Intake, untrained: Knowledge) -> Intake:
    """The photos that a bundle in closed form keeps as photos of a first task."""
    kept = untrained.images_of(untrained.exemplars)
    if not bool(kept.stack.readable().all()):
        raise DataError("a photo that the bundle keeps cannot be read; learn all classes from their photos anew")
    missing = [
        name for name, count in zip(untrained.class_names, kept.class_counts().tolist(), strict=True) if not count
    ]
    if missing:
        raise DataError(
            f"no photo is kept of '{missing[0]}', so that the network cannot be trained on it; "
            "go on without method=..., or give photos of all classes to a first learn"
        )
    return replace(
        intake, train=concatenate(intake.train, kept), num_known=0, num_new=intake.num_known + intake.num_new
    )


def _check(
    before: Knowledge | None, settings: LearnerSettings, photos: Photos, resizing: Resizing, choice: BackboneChoice
) -> None:
    """Refuse what cannot be learned from these photos with these settings."""
    known = before.class_names if before else ()
    again = [name for name in photos.class_names if name in known]
    if before is None or (settings.options.starts_anew and len(again) < len(photos.class_names)):
        _try_to_make(choice, settings, resizing.size, is_first=before is None)
    settings.quota(len({*known, *photos.class_names}))
    if wrong := settings.options.problem(len(before.task_sizes) + 1 if before else 1):
        raise SettingsError(wrong)
    options = settings.options
    if again and not (options.uses_memory or options.keeps_all_images or options.refreshes_by_phases):
        raise DataError(
            f"method '{settings.method}' keeps no exemplars, so it cannot learn more images of known classes "
            f"('{again[0]}'); use method=foster or another that does"
        )
    if wrong := augmentation_of(settings, resizing.size).problem(resizing.size):
        raise SettingsError(wrong)


def _unlabeled(settings: LearnerSettings, resizing: Resizing, follower: Follower) -> ImageSet | None:
    """The images without labels that the method asks for, kept as the photos are."""
    source = settings.options.unlabeled_source
    if not source:
        return None
    images = load_unlabeled(source, resizing.size, None, follower.warn, follower, settings.unlabeled_key)
    return replace(images, stack=stack_for_learner(images.images, resizing))


def _try_to_make(
    choice: BackboneChoice, settings: LearnerSettings, image_size: tuple[int, int], is_first: bool
) -> None:
    """A backbone that cannot be made, or does not work, is found before all photos are read."""
    try:
        made = choice.make()
        if choice.is_own:  # others are tried whenever they are made
            check_backbone(made, image_size, choice.name)
    except SettingsError as error:
        if is_first or not settings.weights:
            raise
        # A bundle knows only the name of the file.
        raise SettingsError(
            f"{error}; method '{settings.method}' starts anew from it in every learn: say where it is now with "
            "weights=PATH, or start from random weights with weights="
        ) from None


def statistics(images: Stack | Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images `[N, 3, H, W]`, for values from 0 to 1."""
    stride = -(-len(images) // NUM_IMAGES_FOR_STATISTICS)
    count, total, squares = torch.zeros(3, 3, dtype=torch.float64)
    for chunk in as_stack(images)[::stride].split(16):  # as doubles, many would take more than all photos do
        values = on_device(chunk, torch.device("cpu")).double()
        count += values[:, 0].numel()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt() / 255
    rounded = [[round(value, 4) for value in values.tolist()] for values in (mean / 255, std.clamp_min(SMALLEST_STD))]
    return tuple(rounded[0]), tuple(rounded[1])


def _engine(plan: Plan) -> Engine:
    settings = engine_settings(plan.settings.engine, plan.backbone.is_own)
    if plan.is_short and settings.compile == "auto":
        settings = settings.model_copy(update={"compile": "off"})
    engine = build_engine(settings, plan.settings.device, plan.preprocessing.mean, plan.preprocessing.std)
    if plan.is_short:
        torch.backends.cudnn.benchmark = False
    return engine


def _method(plan: Plan, engine: Engine) -> Method[Any]:
    """The method as it stands before this `learn`."""
    settings = plan.settings
    options = plan.options
    memory = ExemplarMemory(per_class=plan.exemplar_quota) if options.uses_memory else ExemplarMemory()
    backbone = plan.backbone.make
    place = (engine.infer, engine.device, settings.selection, plan.unlabeled, engine.normalised)
    context = Context(backbone, settings.seed, *place)
    method = method_class(settings.method)(options, memory, context)
    if plan.before is not None:
        memory.hold_those_of(plan.before.exemplars)
        method.network = copy.deepcopy(plan.before.network).to(engine.device)
    return method


@dataclass(frozen=True)
class TimedPhase:
    name: str
    epochs: int
    seconds_an_epoch: float

    @property
    def seconds(self) -> float:
        return self.epochs * self.seconds_an_epoch


@dataclass(frozen=True)
class Forecast:
    """The seconds of every phase, those that all else takes, and the memory in bytes."""

    phases: tuple[TimedPhase, ...]
    num_bytes: int
    seconds_beside: float = 0.0

    @property
    def seconds(self) -> float:
        return self.seconds_beside + sum(phase.seconds for phase in self.phases)


def _foreseen(
    plan: Plan, method: Method[Any], task: Task, engine: Engine, minutes: float | None, work: WorkFolder | None
) -> tuple[Plan, Method[Any], Forecast]:
    """How long the learn will take, with the schedules as planned or as they fit into `minutes`."""
    ahead = forecast(plan, method, task, engine)
    if minutes is None:
        return plan, method, ahead
    kept = work.setting("epochs_scale") if work else None  # of the same learn, interrupted
    fitted = plan.within(60 * minutes, ahead.seconds_beside, ahead.seconds - ahead.seconds_beside)
    plan = plan.with_epochs_scale(kept) if kept else fitted
    method = _method(plan, engine)
    return plan, method, forecast(plan, method, task, engine)


def forecast(plan: Plan, method: Method[Any], task: Task, engine: Engine) -> Forecast:
    """Rehearse the task on a copy of the method, which stays as it is: a few steps of each phase, and one inference."""
    chosen = torch.arange(plan.batch_size) % plan.num_training_images
    sample = task.training.select(chosen)
    actor = copy.copy(method)
    actor.memory = BorrowedMemory(method.memory)
    infer = Nothing(lambda network: engine.infer(network, sample.stack[:1]))
    # Which images would be remembered makes no difference here, and choosing them at random takes no features.
    actor.context = replace(method.context, infer=infer, selection="random")
    if plan.before is not None:
        actor.network = copy.deepcopy(method.network)
    phases, state_bytes, seconds_beside = [], 0, 0.0
    with torch.random.fork_rng(devices=[]):
        for phase in phases_of(actor, task):
            if isinstance(phase, Phase):
                num_steps = -(-len(phase.data) // plan.batch_size)
                seconds = seconds_an_epoch(phase, sample, task.index, engine, plan.augmentation, plan.batch_size)
                phases.append(TimedPhase(phase.name, phase.fit.epochs, num_steps * seconds))
                num_parameters = sum(value.numel() for value in phase.network.parameters())
                state_bytes = max(state_bytes, bytes_of_parameter(phase.fit) * num_parameters)
                seconds_beside += _seconds_of_inference(phase.network, sample.stack, engine) * (
                    2 * plan.num_training_images + 2 * len(plan.held_out)
                )
    images = sample.stack.num_copies * sample.stack.shape[1:].numel() * plan.num_training_images
    return Forecast(tuple(phases), BYTES_OF_PROCESS + images + state_bytes, seconds_beside)


def _seconds_of_inference(network: nn.Module, images: Stack, engine: Engine) -> float:
    """How long one image takes."""
    began = time.monotonic()
    engine.infer(network, images)
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)
    return (time.monotonic() - began) / len(images)


class LearnClock:
    """Passes events on, with the time left of the whole `learn` in place of that of a phase."""

    def __init__(self, listener: events.Listener, forecast: Forecast) -> None:
        self._listener = listener
        self._phases = {phase.name: phase for phase in forecast.phases}
        self._ahead = [phase.name for phase in forecast.phases]
        self._paces: list[float] = []
        self._after = forecast.seconds_beside / max(1, len(forecast.phases))
        self._ended = 0.0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.PhaseStarted):
            if self._ended:  # what came after the phase before says best what comes after this one
                self._after = time.monotonic() - self._ended
            if event.phase in self._ahead:
                self._ahead = self._ahead[self._ahead.index(event.phase) + 1 :]
        if isinstance(event, events.PhaseEnded):
            self._ended = time.monotonic()
        if isinstance(event, events.EpochEnded):
            if event.phase in self._phases:
                self._paces.append(event.seconds / max(self._phases[event.phase].seconds_an_epoch, 1e-9))
            later = (median_low(self._paces) if self._paces else 1.0) * sum(
                self._phases[name].seconds for name in self._ahead
            )
            later += self._after * (len(self._ahead) + 1)
            event = replace(event, seconds_left=event.seconds_left + later)
        self._listener(event)


@dataclass(frozen=True)
class Trained:
    """The epochs of every phase, and the accuracy of every network evaluated on the way (a mean over classes)."""

    epochs: dict[str, int]
    accuracies: dict[str, float]


def _train(
    request: Request, plan: Plan, method: Method[Any], task: Task, engine: Engine, listener: events.Listener
) -> tuple[Trained, float]:
    """Train the method, from the beginning or from what `work` holds; and the seconds that the latter took."""
    work, settings, num_tasks = request.work, plan.settings, len(plan.task_sizes) + 1
    start = fingerprint(settings, plan.before, plan.intake, method.context.unlabeled) if work else {}
    state = (work.progress(start, listener) if work else None) or TaskState(task.index)
    earlier_seconds = state.seconds
    minutes, seed = settings.checkpoint_minutes, settings.seed
    trainer = Trainer(engine, plan.augmentation, plan.batch_size, seed, listener, request.stop, minutes, num_tasks)
    trainer.stop_if_asked()
    save = partial(state.save, work.checkpoints, {"learning": start}, listener) if work else None
    accuracies: dict[str, float] = {}

    def note_accuracy(wanted: Evaluate) -> None:
        if len(plan.held_out):
            accuracies[wanted.variant] = _accuracy(trainer, wanted, task, plan)

    trainer.begin(task)
    if state.phase:
        listener(state.resumed)
    epochs = trainer.learn(phases_of(method, task), state, note_accuracy, save)
    return Trained(epochs, accuracies), earlier_seconds


def fingerprint(
    settings: LearnerSettings, before: Knowledge | None, intake: Intake, unlabeled: ImageSet | None
) -> dict[str, Any]:
    """What one `learn` starts from, as plain data: the settings, and hashes of the images as they were decoded and of
    what is known before them. Equal fingerprints lead to equal weights.

    Where and how it is computed is not part of it, and neither are names and places of files.
    """
    parts = {"training": intake.train, "held-out": intake.held_out}
    images = {f"{name} {key}": value for name, part in parts.items() for key, value in tensors_of(part).items()}
    return {
        "settings": settings.nested(),
        "known": _known(before) if before else "",
        "images": digest(images, intake.class_names),
        "unlabeled": images_digest(unlabeled),
    }


def _known(knowledge: Knowledge) -> str:
    memories = {"exemplars": knowledge.exemplars.state(), "held-out": knowledge.held_out.state()}
    tensors = dict(knowledge.network.state_dict())
    tensors |= {f"{name} {key}": value for name, state in memories.items() for key, value in state.items()}
    preprocessing = knowledge.preprocessing.model_dump(exclude_defaults=True)
    return digest(tensors, knowledge.class_names, knowledge.task_sizes, preprocessing)


def _accuracy(trainer: Trainer, wanted: Evaluate, task: Task, plan: Plan) -> float:
    """In percent, the mean over all classes."""
    held_out = plan.held_out
    logits = trainer.engine.infer(wanted.network, held_out.stack).logits
    rank, labels = ranks(logits, held_out.labels).cpu(), held_out.labels
    sizes = [size for size in (task.num_known, task.num_new) if size]
    evaluation = evaluate(rank.numpy(), labels.numpy(), sizes)
    trainer.listener(events.Evaluated(task.index, wanted.variant, **vars(evaluation)))
    by_class = accuracy_by_class(rank == 0, labels)
    return sum(by_class.values()) / len(by_class)


def accuracy_by_class(is_right: Tensor, labels: Tensor) -> dict[int, float]:
    """In percent, for each class that has an image."""
    return {label: 100 * float(is_right[labels == label].double().mean()) for label in labels.unique().tolist()}


def outcome(
    plan: Plan, method: Method[Any], trained: Trained, engine: Engine, title: str, began: float
) -> tuple[Knowledge, LearnReport]:
    """What is known once the method has been trained, with its history, and what there is to tell of it.

    `title` names the photos; `began` is when the learn did, on the monotonic clock.
    """
    after = _knowledge(plan, method)
    classifier = after.classifier(engine.device, temperature=1.0)
    scores = classifier.all_scores(plan.held_out.stack)
    temperature = fit_temperature(scores, plan.held_out.labels)
    if temperature:
        held_out = probabilities(scores, temperature)
        familiarity = _familiarity(plan, method, held_out, engine)
        num_images = len(plan.held_out)
        after = replace(after, temperature=temperature, num_calibration_images=num_images, familiarity=familiarity)
    checks = _checks(plan, scores, classifier.all_scores(plan.exemplars_before.stack), engine)
    accuracies = dict(trained.accuracies)
    result = next((check.accuracy for check in checks if check.kind == "held-out"), None)
    if result is not None:
        accuracies[method.result_name] = result
    store, beside = _closed_form_beside(plan, engine)
    if beside is not None:
        accuracies[CLOSED_FORM_VARIANT] = beside
    after = replace(after, store=store)
    seconds = round(time.monotonic() - began, 1)  # here, so that whatever tells of it later tells the same
    report = _report(plan, after, trained, accuracies, method.result_name, checks, seconds)
    entry = {
        "source": title.strip("'").rsplit("/", 1)[-1],
        "method": plan.settings.method,
        "training": plan.settings.training,
        "held_out_share": plan.settings.held_out_share,
        "trained_from": dict(plan.intake.trained_from),
        "epochs": trained.epochs,
        "batch_size": plan.batch_size,
        "device": str(engine.device),
        "unknown_threshold": after.familiarity.threshold if after.familiarity else None,
        **report.record(),
    }
    return after.with_entry(entry), report


def _knowledge(plan: Plan, method: Method[Any]) -> Knowledge:
    """What is known once the method has been trained, with the calibration of before: a network that nobody measured is
    better judged as the one before it than not at all. History and calibration follow."""
    intake, before = plan.intake, plan.before
    grew = has_own_phases(method, intake.num_new)
    held_out = kept_held_out(plan.held_out, plan.held_out_quota)
    known = before or plan.untrained
    return Knowledge(
        class_names=intake.class_names,
        task_sizes=(*plan.task_sizes, intake.num_new) if grew else plan.task_sizes,
        method=plan.settings.method,
        backbone=plan.backbone.name,
        preprocessing=plan.preprocessing,
        network=method.network,
        memories=Memories(lambda: method.memory, lambda: held_out),
        temperature=before.temperature if before else 1.0,
        num_calibration_images=before.num_calibration_images if before else 0,
        history=known.history if known else (),
    )


def _checks(plan: Plan, scores: Tensor, exemplar_scores: Tensor, engine: Engine) -> tuple[UpdateCheck, ...]:
    """Before and after, on held-out images and on the exemplars that both networks were trained on."""
    num_known, names = plan.intake.num_known, plan.intake.class_names
    old = plan.before.classifier(engine.device) if plan.before else None
    checks = []
    for kind, images, now in (
        ("held-out", plan.held_out, scores),
        ("exemplar", plan.exemplars_before, exemplar_scores),
    ):
        if len(images):
            then = old.all_scores(images.stack).argmax(1).numpy() if old else None
            checks.append(compare(kind, images.labels.numpy(), then, now.argmax(1).numpy(), names, num_known))
    return tuple(checks)


def _familiarity(plan: Plan, method: Method[Any], held_out: Tensor, engine: Engine) -> Familiarity | None:
    """What is usual for known things, from what was trained on and, for the threshold, from what was held out and its
    probabilities `[N, C]`."""
    trained = concatenate(plan.intake.train, plan.exemplars_before)
    features = engine.infer(method.network, trained.stack).features
    of_held_out = engine.infer(method.network, plan.held_out.stack).features
    return Familiarity.fitted(features, trained.labels, (held_out, of_held_out))


def _closed_form_beside(plan: Plan, engine: Engine) -> tuple[FeatureStore | None, float | None]:
    """Features and sums of all photos learned so far by the pretrained backbone, and the accuracy that a head in closed
    form has on the held-out images: None where the backbone is not pretrained, or earlier photos were not summed."""
    known = plan.before or plan.untrained
    if not plan.backbone.is_pretrained or (known is not None and known.store is None):
        return None, None
    intake, settings = plan.intake, plan.settings
    try:
        backbone = plan.backbone.make()
    except SettingsError:  # a bundle knows only the name of the file with the pretrained weights
        return None, None
    network = Network([backbone], RootHead(backbone.feature_size, 0))
    classifier = Classifier(network, plan.preprocessing).to(engine.device)
    store = known.store if known and known.store else FeatureStore.empty(backbone.feature_size)
    stored = store.entries()
    ids = ids_of(intake.train.stack)
    entries = list(zip(intake.train.labels.tolist(), ids, strict=True))
    is_fresh = torch.tensor([entry not in stored for entry in entries])
    fresh = intake.train.select(is_fresh)
    features = stored_features(classifier.features(fresh.stack))
    fresh_ids = [own for (_, own), chosen in zip(entries, is_fresh.tolist(), strict=True) if chosen]
    num_classes = len(intake.class_names)
    store = store.added(features, fresh.labels, fresh_ids, num_classes, settings.features_per_class)
    if not len(plan.held_out):
        return store, None
    weight, bias = linear_discriminants(store.statistics)
    rows = stored_features(classifier.features(plan.held_out.stack)).double()
    is_right = (rows @ weight.T + bias).argmax(1) == plan.held_out.labels
    by_class = accuracy_by_class(is_right, plan.held_out.labels)
    return store, sum(by_class.values()) / len(by_class)


def _report(
    plan: Plan,
    after: Knowledge,
    trained: Trained,
    accuracies: dict[str, float],
    result: str,
    checks: tuple[UpdateCheck, ...],
    seconds: float,
) -> LearnReport:
    intake = plan.intake
    num_before = len(plan.untrained.class_names) if plan.untrained else intake.num_known
    return LearnReport(
        **vars(intake.inventory),
        new_classes=after.class_names[num_before:],
        num_trained=len(intake.train),
        num_held_out=len(intake.held_out),
        num_exemplars=after.exemplars.num_images,
        seconds=seconds,
        temperature=after.temperature,
        num_calibration_images=after.num_calibration_images,
        variants=accuracies,
        result=result,
        checks=checks,
        uncompared=plan.uncompared,
    )
