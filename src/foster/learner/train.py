"""A `learn` whose network is trained, in the order in which it happens: check the settings, read the photos, forecast
the time, train, measure. Nothing of what was known before is changed."""

import copy
import time
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

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
    images_digest,
)
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.data.photos.reading import learner_loader, read_for_training
from foster.data.task import Task
from foster.errors import DataError, SettingsError
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import Nothing, ranks
from foster.experiment.engine import build_engine, engine_settings, place_for_photos
from foster.experiment.plan import planned_phases
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier
from foster.learner.closed_form import READ_AT_ONCE, frozen_network, linear_discriminants, stored_features
from foster.learner.familiarity import Familiarity
from foster.learner.knowledge import FeatureStore, KeptImages, Knowledge, no_images
from foster.learner.plan import Plan, quotas
from foster.learner.reports import CLOSED_FORM_VARIANT, LearnReport, UpdateCheck, compare
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.methods.refresh import phases_of, trains_phases
from foster.networks.adapted import choose_backbone
from foster.networks.network import Backbone
from foster.settings.learner_defaults import PRETRAINED, batch_size_for, frozen_side_for
from foster.settings.method import MethodSettings
from foster.system.counts import counted
from foster.training.engine import Engine, find_device
from foster.training.memory_errors import explained_memory_errors
from foster.training.phase import Evaluate, Phase
from foster.training.task import TaskState, Trainer, seconds_an_epoch

FEWEST_IMAGES = 3
"""A class with fewer images holds none out."""

SMALLEST_STD = 0.01
NUM_IMAGES_FOR_STATISTICS = 10_000
MEASURED_SECONDS = 2.0
"""How long the steps of each phase are timed where the schedules are fitted to a time."""

NUM_FROZEN = 8
"""Images on which the closed form beside a training is timed."""

MANY_STEPS = 5000
"""With at least this many steps in a phase, compiling and cuDNN's benchmark save more time than they take."""


def learn_by_training(asked: Plan) -> tuple[Knowledge, LearnReport]:
    """Learn the classes of the photos by the phases of a method."""
    plan = plan_training(asked)
    engine = _engine(plan)
    with explained_memory_errors(engine.device, plan.batch_size):
        method = _method(plan, engine)
        exemplars = method.memory.exemplars(plan.class_names)
        task = Task(len(plan.task_sizes), plan.num_known, plan.num_new, plan.train, exemplars)
        if plan.asked or plan.minutes is not None:
            ahead = forecast(plan, method, task, engine)
            if plan.minutes is not None:
                scale = fitted_scale(plan, ahead, plan.minutes)
                ahead = ahead.scaled(scale / plan.epochs_factor)
                plan = replace(plan, settings=plan.settings.model_copy(update={"epochs_scale": scale}))
                method = _method(plan, engine)
            plan.listener(events.LearnPlanned(plan.summary(), ahead.training + ahead.beside))
        report, seconds_before = train(plan, method, task, engine)
        return outcome(plan, method, report, engine, seconds_before)


@dataclass(frozen=True, eq=False)
class TrainingPlan(Plan):
    """The plan of a training, once its photos are read."""

    train: ImageSet
    """The new photos to train on, with ids for all classes known afterwards."""
    new_held_out: ImageSet
    num_known: int
    preprocessing: Preprocessing
    untrained: Knowledge | None
    """What a bundle in closed form knows, where it is trained now for the first time; `train` has its kept photos."""
    report: LearnReport
    """What was found in the source."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def num_new(self) -> int:
        return len(self.class_names) - self.num_known

    @property
    def earlier(self) -> Knowledge | None:
        """What answered before this learn: a trained network, or the closed form."""
        return self.before or self.untrained

    @cached_property
    def exemplars_before(self) -> ImageSet:
        """The exemplars of the known classes."""
        none = no_images(self.preprocessing.size, ())
        return self.before.images_of(self.before.exemplars) if self.before else none

    @cached_property
    def held_out(self) -> ImageSet:
        """All images that were never trained on: those of this `learn` and those kept from earlier ones."""
        if self.before is None:
            return self.new_held_out
        return concatenate(self.new_held_out, self.before.images_of(self.before.held_out))

    @cached_property
    def uncompared(self) -> tuple[str, ...]:
        """The known classes without an image: what they lose cannot be measured."""
        seen = {*self.held_out.labels.tolist(), *self.exemplars_before.labels.tolist()}
        known = self.earlier.class_names if self.earlier else ()
        return tuple(name for k, name in enumerate(known) if k not in seen)

    @property
    def num_training_images(self) -> int:
        return len(self.train) + len(self.exemplars_before)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size or batch_size_for(self.num_training_images, self.preprocessing.size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_training_images // self.batch_size)

    @property
    def epochs_factor(self) -> float:
        """The factor on the method's published epochs."""
        return self.settings.epochs_factor(self.steps_per_epoch, self.backbone.is_pretrained)

    @property
    def options(self) -> MethodSettings:
        """The method's settings with the epochs and learning rates of this learn."""
        return self.settings.scaled_options(self.steps_per_epoch, self.backbone.is_pretrained, self.batch_size)

    @property
    def is_short(self) -> bool:
        """Whether the training is too short for compiling and cuDNN's benchmark."""
        return self.options.first.epochs * self.steps_per_epoch < MANY_STEPS

    def summary(self) -> tuple[str, str]:
        """What is about to be done, for people."""
        photos = f"{counted(len(self.train), 'photo')}, {len(self.new_held_out):,} more held out to measure"
        if self.num_known:
            kept = counted(len(self.exemplars_before), "kept photo")
            photos += f"; {kept} of {counted(self.num_known, 'known class')}"
        start = "pretrained" if self.backbone.is_pretrained else "from scratch"
        return self.lines(self.report.new_classes, photos, start, f"trained by {self.settings.method}")

    @property
    def quotas(self) -> tuple[int | None, int | None]:
        """How many exemplars and held-out images of each class are kept; None for no limit. A `learn` that holds out
        nothing keeps those of earlier ones."""
        share = self.settings.held_out_share or (self.before.held_out_share if self.before else 0.0)
        return quotas(self.settings.quota(len(self.class_names)), share)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return self.before.task_sizes if self.before else ()

    @cached_property
    def frozen_features(self) -> Callable[[Stack], Tensor] | None:
        """Computes the features that a learn in closed form would store, of images of this learn: by the backbone, if
        it is pretrained, else by the default one. None where there are no pretrained weights."""
        choice, resizing = self.backbone, self.resizing
        if not choice.is_pretrained:
            # The same size on every device: features of several learns are added up.
            side = frozen_side_for(on_gpu=False)
            resizing = Resizing(side, side)
            choice = choose_backbone(PRETRAINED, resizing.size)
        try:
            network, preprocessing = frozen_network(choice, resizing)
        except SettingsError:  # a bundle knows only the name of a file with other weights
            return None
        classifier = Classifier(network, preprocessing).to(find_device(self.settings.device))

        def features_of(images: Stack) -> Tensor:
            parts = [torch.empty(0, network.feature_size).half()]
            for chunk in images.split(READ_AT_ONCE) if len(images) else ():
                seen: Stack | Tensor = chunk
                if chunk.shape[2:] != resizing.size:
                    pixels = chunk.on_device(torch.device("cpu"))
                    seen = functional.interpolate(pixels, resizing.size, mode="bilinear", antialias=True)
                parts.append(stored_features(classifier.features(seen)))
            return torch.cat(parts)

        return features_of


def plan_training(plan: Plan) -> TrainingPlan:
    """Check the settings, then read all photos, leave out those that are kept already, and hold out a part of every
    class."""
    untrained = plan.before if plan.before is not None and plan.before.is_closed_form else None
    if untrained is not None:
        _check_kept_photos(untrained)
        # Its backbone is still as it was pretrained.
        backbone = untrained.network.branches[0]
        choice = replace(plan.backbone, make=lambda: cast(Backbone, copy.deepcopy(backbone)))
        plan = replace(plan, backbone=choice)
    _check(plan, None if untrained else plan.before)
    before, settings, photos, known = plan.before, plan.settings, plan.photos, plan.known
    place, folder = place_for_photos(settings.engine)
    loader = learner_loader(plan.resizing, find_device(settings.device), place, folder, settings.max_unreadable)
    loader = replace(loader, follower=Follower(plan.asked or events.ignore, plan.stop))
    read = read_for_training(photos, plan.resizing, loader)
    readable = set(read.labels)
    names = (*known, *(name for name in photos.class_names if name in readable and name not in known))
    images = ImageSet(read.stack, torch.tensor([names.index(name) for name in read.labels]), names)
    entries = list(zip(images.labels.tolist(), images.stack.ids(), strict=True))
    stored = before.held_out.entries() | before.exemplars.entries() if before else set()
    fresh = images.select(torch.tensor([entry not in stored for entry in entries]))
    if not len(fresh):
        raise DataError(f"all {len(images)} images in {photos.title} are kept from earlier learns: nothing to learn")
    fresh_entries = [entry for entry in entries if entry not in stored]
    hashes = [photo_id for _, photo_id in fresh_entries]
    learned = before.learned_ids() if before else set()
    if before is not None and before.store is None:  # not all photos that it has learned are listed
        learned |= {photo_id for label, photo_id in fresh_entries if label < len(known)}
    num_measured = len(known) if untrained is None else 0
    mask = is_held_out(fresh, hashes, settings.held_out_share, num_measured, learned)
    train, held_out = fresh.select(~mask), fresh.select(mask)
    # Encoded as a bundle keeps them, so that a loaded bundle measures the same.
    held_out = replace(held_out, stack=held_out.stack.owned())
    report = plan.found(names, entries, fresh_entries, stored, read.positions, read.unreadable)
    if untrained is not None:
        train = concatenate(train, untrained.images_of(untrained.exemplars))
    if before is not None:
        preprocessing = before.preprocessing
    else:
        choice = plan.backbone
        mean, std = (choice.mean, choice.std) if choice.mean and choice.std else channel_statistics(train.stack)
        preprocessing = Preprocessing.model_validate({**vars(plan.resizing), "mean": mean, "std": std})
    plan = replace(plan, before=None if untrained else before)
    return TrainingPlan(
        **vars(plan),
        train=train,
        new_held_out=held_out,
        num_known=0 if untrained else len(known),
        preprocessing=preprocessing,
        untrained=untrained,
        report=report,
    )


def is_held_out(
    images: ImageSet, ids: Sequence[str], share: float, num_known: int = 0, learned: Set[str] = frozenset()
) -> Tensor:
    """A mask `[N]`. About `share` of the photos of each class is held out: of a new class at least one of three or
    more, and never all. Class ids below `num_known` have held-out photos already, so that none is needed.

    The photos of the lowest hashes are held out: the choice does not depend on file names, and equal photos are treated
    alike. A photo in several classes is held out where all of them choose it. Photos that were `learned` before are
    never held out, because accuracy on them would be too high.
    """
    members: dict[int, set[str]] = defaultdict(set)
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        members[label] |= {image_hash} - learned
    trained = set(learned)
    for label, hashes in members.items():
        least = int(label >= num_known)
        count = max(least, round(len(hashes) * share)) if share and len(hashes) >= FEWEST_IMAGES else 0
        trained |= set(sorted(hashes)[min(count, len(hashes) - 1) :])
    return torch.tensor([image_hash not in trained for image_hash in ids], dtype=torch.bool)


def kept_held_out(images: ImageSet, quota: int | None) -> ExemplarMemory:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    memory, ids = ExemplarMemory(), images.stack.ids()
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        by_hash = {ids[position]: position for position in positions.tolist()}
        chosen = [by_hash[entry] for entry in sorted(by_hash)][:quota]
        memory.remember(class_id, images.stack[torch.tensor(chosen, dtype=torch.int64)])
    return memory


def _check_kept_photos(untrained: Knowledge) -> None:
    """Refuse to train on a bundle in closed form that keeps no photo of a class."""
    kept = untrained.exemplars.files()
    for class_id, name in enumerate(untrained.class_names):
        if class_id >= len(kept) or not kept[class_id]:
            raise DataError(
                f"no photo is kept of '{name}', so the network cannot be trained on it; leave out method=..., or "
                "start a new bundle from photos of all classes"
            )


def _check(plan: Plan, before: Knowledge | None) -> None:
    """Refuse settings with which these photos cannot be learned."""
    settings, options, names = plan.settings, plan.settings.options, plan.photos.class_names
    known = before.class_names if before else ()
    again = [name for name in names if name in known]
    if before is None or (options.keeps_all_images and len(again) < len(names)):
        plan.backbone.make()  # a module from outside is tried, and weights are read
    if options.unlabeled_source:
        raise SettingsError(f"{settings.section}.unlabeled: an experiment takes unlabeled images, a learner does not")
    settings.quota(len({*known, *names}))
    if wrong := options.problem(len(before.task_sizes) + 1 if before else 1):
        raise SettingsError(wrong)
    if again and not (options.uses_memory or options.keeps_all_images or options.refreshes_by_phases):
        raise DataError(
            f"method '{settings.method}' keeps no exemplars, so it cannot learn more images of known classes "
            f"('{again[0]}'); use method=foster or another that does"
        )
    if wrong := plan.augmentation.problem(plan.resizing.size):
        raise SettingsError(wrong)


def channel_statistics(images: Stack | Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images `[N, 3, H, W]`, for values from 0 to 1."""
    stride = -(-len(images) // NUM_IMAGES_FOR_STATISTICS)
    count, total, squares = torch.zeros(3, 3, dtype=torch.float64)
    for chunk in as_stack(images)[::stride].split(16):  # many as doubles would take more memory than all photos
        values = chunk.on_device(torch.device("cpu")).double()
        count += values[:, 0].numel()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt() / 255
    rounded = [[round(value, 4) for value in values.tolist()] for values in (mean / 255, std.clamp_min(SMALLEST_STD))]
    return tuple(rounded[0]), tuple(rounded[1])


def _engine(plan: TrainingPlan) -> Engine:
    settings = engine_settings(plan.settings.engine, plan.backbone.is_builtin)
    if plan.is_short and settings.compile == "auto":
        settings = settings.model_copy(update={"compile": "off"})
    engine = build_engine(settings, plan.settings.device, plan.preprocessing.mean, plan.preprocessing.std)
    if plan.is_short:
        torch.backends.cudnn.benchmark = False
    return engine


def _method(plan: TrainingPlan, engine: Engine) -> Method[Any]:
    """The method as it stands before this `learn`."""
    settings, options = plan.settings, plan.options
    memory = ExemplarMemory(per_class=plan.quotas[0]) if options.uses_memory else ExemplarMemory()
    place = (engine.infer, engine.device, settings.selection, None, engine.normalised)
    method = method_class(settings.method)(options, memory, Context(plan.backbone.make, settings.seed, *place))
    if plan.before is not None:
        memory.hold_those_of(plan.before.exemplars.memory())
        method.network = copy.deepcopy(plan.before.network).to(engine.device)
    return method


class Forecast(NamedTuple):
    """The epochs of each phase and the estimated seconds of one epoch, and the seconds of everything that is not
    training."""

    phases: tuple[tuple[int, float], ...]
    beside: float

    @property
    def training(self) -> float:
        return sum(epochs * seconds for epochs, seconds in self.phases)

    def scaled(self, factor: float) -> "Forecast":
        """With `factor` times as many epochs of each phase, one at least."""
        phases = ((max(1, round(factor * epochs)), seconds) for epochs, seconds in self.phases)
        return self._replace(phases=tuple(phases))


def forecast(plan: TrainingPlan, method: Method[Any], task: Task, engine: Engine) -> Forecast:
    """Time one batch of each phase, of its network's inference and of the closed form, on a copy of the method."""
    sample = task.training.select(torch.arange(plan.batch_size) % plan.num_training_images)
    actor = copy.copy(method)
    actor.memory = method.memory.borrowed()
    infer = Nothing(lambda network: engine.infer(network, sample.stack[:1]))
    # Random exemplars: which images are remembered makes no difference here, and choosing by features takes time.
    actor.context = replace(method.context, infer=infer, selection="random")
    if plan.before is not None:
        actor.network = copy.deepcopy(method.network)
    seconds_a_step: list[float] = []
    seconds_an_image: list[float] = []

    def look_at(phase: Phase) -> None:
        place = (task.index, engine, plan.augmentation, plan.batch_size)
        measured_seconds = MEASURED_SECONDS if plan.minutes is not None else 0.0
        seconds_a_step.append(seconds_an_epoch(phase, sample, *place, measured_seconds))
        seconds_an_image.append(_seconds_of(lambda: engine.infer(phase.network, sample.stack), engine) / len(sample))

    with torch.random.fork_rng(devices=[]):
        phases = planned_phases(phases_of(actor, task), plan.batch_size, look_at)
    timed = (
        (phase.epochs, seconds * phase.steps / phase.epochs)
        for phase, seconds in zip(phases, seconds_a_step, strict=True)
    )
    # After each phase, all images are inferred twice: to measure, and to choose or describe those that are kept.
    beside = 2 * (plan.num_training_images + len(plan.held_out)) * sum(seconds_an_image)
    if frozen := plan.frozen_features:
        some = sample.stack[:NUM_FROZEN]
        frozen(some)  # the first time takes longer
        beside += (len(plan.train) + len(plan.held_out)) * _seconds_of(lambda: frozen(some), engine) / len(some)
    return Forecast(tuple(timed), beside)


def _seconds_of(work: Callable[[], object], engine: Engine) -> float:
    began = time.monotonic()
    work()
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)
    return time.monotonic() - began


def fitted_scale(plan: TrainingPlan, ahead: Forecast, minutes: float) -> float:
    """The `epochs_scale` with which the learn ends `minutes` after it began; never more than the published epochs."""
    saved: float | None = plan.work.setting("epochs_scale") if plan.work else None  # of the same learn, interrupted
    if saved is not None:
        return saved
    left = 60 * minutes - (time.monotonic() - plan.began) - ahead.beside
    share = max(0.0, left) / max(ahead.training, 1e-6)
    return round(min(1.0, max(1e-4, plan.epochs_factor * share)), 4)


def train(plan: TrainingPlan, method: Method[Any], task: Task, engine: Engine) -> tuple[LearnReport, float]:
    """Train the method, from the beginning or from the checkpoint in the work folder.

    Returns the report, with the epochs of every phase and the accuracy of every variant on held-out images, and the
    seconds of earlier attempts."""
    work, settings, listener, num_tasks = plan.work, plan.settings, plan.listener, len(plan.task_sizes) + 1
    start = fingerprint(plan) if work else {}
    state = (work.progress(start, listener) if work else None) or TaskState(task.index)
    seconds_before = state.seconds_before
    minutes, seed = settings.checkpoint_minutes, settings.seed
    trainer = Trainer(engine, plan.augmentation, plan.batch_size, seed, listener, plan.stop, minutes, num_tasks)
    trainer.stop_if_asked()
    save = partial(state.save, work.checkpoints, {"learning": start}, listener) if work else None
    accuracies: dict[str, float] = {}

    def note_accuracy(wanted: Evaluate) -> None:
        if len(plan.held_out):
            accuracies[wanted.variant] = _accuracy(trainer, wanted, task, plan.held_out)

    trainer.begin(task)
    if state.phase:
        listener(state.resumed)
    epochs = trainer.learn(phases_of(method, task), state, note_accuracy, save)
    return replace(plan.report, epochs=epochs, variants=accuracies), seconds_before


def fingerprint(plan: TrainingPlan) -> dict[str, Any]:
    """What one `learn` starts from, as plain data: the settings, and hashes of the images and of the knowledge before.
    Equal fingerprints lead to equal weights. The device and the names of files are not part of it."""
    known = ""
    if plan.before is not None:
        kept = {"exemplars": plan.before.exemplars, "held-out": plan.before.held_out}
        memories = {name: images.memory().state() for name, images in kept.items()}
        tensors = dict(plan.before.network.state_dict())
        tensors |= {f"{name} {key}": value for name, state in memories.items() for key, value in state.items()}
        preprocessing = plan.preprocessing.model_dump(exclude_defaults=True)
        known = digest(tensors, plan.known, plan.task_sizes, preprocessing)
    return {
        "settings": plan.settings.nested(),
        "known": known,
        "images": digest({}, plan.class_names, images_digest(plan.train), images_digest(plan.new_held_out)),
    }


def _accuracy(trainer: Trainer, wanted: Evaluate, task: Task, held_out: ImageSet) -> float:
    """In percent, the mean over all classes."""
    logits = trainer.engine.infer(wanted.network, held_out.stack).logits
    rank, labels = ranks(logits, held_out.labels).cpu(), held_out.labels
    sizes = [size for size in (task.num_known, task.num_new) if size]
    evaluation = evaluate(rank.numpy(), labels.numpy(), sizes)
    trainer.listener(events.Evaluated(task.index, wanted.variant, **vars(evaluation)))
    return class_accuracy(held_out, torch.where(rank == 0, labels, -1))


def class_accuracy(images: ImageSet, answers: Tensor) -> float:
    """In percent, the mean over the classes that have an image."""
    return compare("held-out", images.labels, None, answers, images.class_names, 0).accuracy or 0.0


def outcome(
    plan: TrainingPlan, method: Method[Any], report: LearnReport, engine: Engine, seconds_before: float
) -> tuple[Knowledge, LearnReport]:
    """What is known once the method has been trained: calibrated, with its history; and the whole report."""
    before, earlier = plan.before, plan.earlier
    held_out = kept_held_out(plan.held_out, plan.quotas[1])
    after = Knowledge(
        class_names=plan.class_names,
        task_sizes=(*plan.task_sizes, plan.num_new) if trains_phases(method, plan.num_new) else plan.task_sizes,
        method=plan.settings.method,
        backbone=plan.backbone.name,
        preprocessing=plan.preprocessing,
        network=method.network,
        exemplars=KeptImages.of_memory(method.memory),
        held_out=KeptImages.of_memory(held_out),
        # Where nothing is held out, the calibration of before is better than none.
        temperature=before.temperature if before else 1.0,
        num_calibration_images=before.num_calibration_images if before else 0,
        history=earlier.history if earlier else (),
    )
    classifier = after.classifier(engine.device, temperature=1.0)
    scores = classifier.all_scores(plan.held_out.stack)
    if temperature := fit_temperature(scores, plan.held_out.labels):
        familiarity = _familiarity(plan, method, probabilities(scores, temperature), engine)
        num_images = len(plan.held_out)
        after = replace(after, temperature=temperature, num_calibration_images=num_images, familiarity=familiarity)
    checks = _checks(plan, scores, classifier.all_scores(plan.exemplars_before.stack), engine)
    variants, result = dict(report.variants), method.result_name
    measured = next((check.accuracy for check in checks if check.kind == "held-out"), None)
    if measured is not None:
        variants[result] = measured
    store, beside = _closed_form_beside(plan)
    if beside is not None:
        variants[CLOSED_FORM_VARIANT] = beside
    report = replace(
        report,
        num_trained=len(plan.train),
        num_held_out=len(plan.new_held_out),
        num_exemplars=after.exemplars.num_images,
        seconds=round(time.monotonic() - plan.began + seconds_before, 1),
        temperature=after.temperature,
        variants=variants,
        result=result,
        checks=checks,
        uncompared=plan.uncompared,
    )
    entry = {
        "training": plan.settings.training,
        "held_out_share": plan.settings.held_out_share,
        "batch_size": plan.batch_size,
    }
    return replace(after, store=store).learned(plan.photos.title, report, engine.device, entry), report


def _checks(plan: TrainingPlan, scores: Tensor, exemplar_scores: Tensor, engine: Engine) -> tuple[UpdateCheck, ...]:
    """Before and after, on held-out images and on the exemplars that both networks were trained on."""
    earlier = plan.earlier
    old, num_known = (earlier.classifier(engine.device), earlier.num_classes) if earlier else (None, 0)

    def check(kind: str, images: ImageSet, now: Tensor) -> UpdateCheck:
        then = old.all_scores(images.stack).argmax(1) if old else None
        return compare(kind, images.labels, then, now.argmax(1), plan.class_names, num_known)

    checks = (check("held-out", plan.held_out, scores), check("exemplar", plan.exemplars_before, exemplar_scores))
    return tuple(check for check in checks if check.classes)


def _familiarity(plan: TrainingPlan, method: Method[Any], held_out: Tensor, engine: Engine) -> Familiarity | None:
    """The familiarity of the trained photos; its threshold comes from the held-out photos and their probabilities `[N,
    C]`."""
    trained = concatenate(plan.train, plan.exemplars_before)
    features = engine.infer(method.network, trained.stack).features
    of_held_out = engine.infer(method.network, plan.held_out.stack).features
    return Familiarity.fitted(features, trained.labels, (held_out, of_held_out))


def _closed_form_beside(plan: TrainingPlan) -> tuple[FeatureStore | None, float | None]:
    """Frozen features and sums of all photos learned so far, and the accuracy of their closed form on held-out images;
    None where there is no pretrained backbone, or earlier photos were not summed."""
    known, features_of = plan.earlier, plan.frozen_features
    if features_of is None or (known is not None and known.store is None):
        return None, None
    of_held_out = features_of(plan.held_out.stack)
    store = known.store if known and known.store else FeatureStore.empty(of_held_out.shape[1])
    stored, ids = store.entries(), plan.train.stack.ids()
    fresh = [k for k, entry in enumerate(zip(plan.train.labels.tolist(), ids, strict=True)) if entry not in stored]
    images = plan.train.select(torch.tensor(fresh, dtype=torch.int64))
    per_class, num_classes = plan.settings.features_per_class, len(plan.class_names)
    store = store.added(features_of(images.stack), images.labels, [ids[k] for k in fresh], num_classes, per_class)
    if not len(plan.held_out):
        return store, None
    weight, bias = linear_discriminants(store.statistics)
    answers = (of_held_out.double() @ weight.T + bias).argmax(1)
    return store, class_accuracy(plan.held_out, answers)
