"""One `learn`: from what a learner knows and some photos to what it knows afterwards."""

import copy
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import Tensor

from foster import events
from foster.data.augmentation.pipeline import Normaliser
from foster.data.download import Follower
from foster.data.images import concatenate
from foster.data.memory import ExemplarMemory
from foster.data.photos.read import Photos
from foster.data.task import Task
from foster.errors import DataError
from foster.experiment.parts import build_engine, engine_settings
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier, scores_of_all
from foster.learner.familiarity import Familiarity
from foster.learner.fingerprint import fingerprint
from foster.learner.forecast import LearnClock, forecast
from foster.learner.held_out import kept_held_out
from foster.learner.knowledge import Knowledge, Memories
from foster.learner.plan import Plan, make_plan
from foster.learner.reports import LearnReport
from foster.learner.training import Trained, has_own_phases, train
from foster.learner.update_check import UpdateCheck, compare, problem
from foster.learner.work_folder import WorkFolder
from foster.methods import method_class
from foster.methods.base import Method, Workplace
from foster.networks.adapted import ModuleLike
from foster.networks.determinism import explained_indeterminism
from foster.settings.learner import LearnerSettings
from foster.system.crew import barrier, of_first
from foster.system.signals import StopRequest
from foster.training.engine import Engine, find_device
from foster.training.memory_errors import explained_memory_errors
from foster.training.task import TaskState, Trainer
from foster.training.views import TrunkViews
from foster.version import __version__

MIN_IMAGES = 2
"""One image alone has no statistics to normalise it by."""


@dataclass(frozen=True, eq=False)
class Learned:
    """The outcome of a `learn`; nothing of what was known before is changed."""

    knowledge: Knowledge
    settings: LearnerSettings
    report: LearnReport


class RefusedError(Exception):
    """What was learned, and why it must not take the place of what was known."""

    def __init__(self, reason: str, learned: Learned) -> None:
        super().__init__(reason)
        self.learned = learned


def learn(
    before: Knowledge | None,
    settings: LearnerSettings,
    photos: Photos,
    *,
    backbone: ModuleLike | None = None,
    max_drop: float | None = None,
    listener: events.Listener,
    stop: StopRequest,
    work: WorkFolder | None = None,
    has_forecast: bool = False,
    minutes: float | None = None,
) -> Learned:
    """Learn the classes of `photos`, new ones and more of known ones.

    With `max_drop`, RefusedError is raised where the known classes lose more points than that, or the new ones by
    compression. With `work`, a folder that is held, what was trained is saved there, and what is found there is
    continued. With `has_forecast`, what will be done and how long it takes is told first, and the time left covers all
    of it; `minutes` also shortens or stretches the schedules to that time.
    """
    began = time.monotonic()
    if photos.doubt:
        listener(events.Warned(photos.doubt))
    with explained_memory_errors(find_device(settings.device)):
        follower = Follower(listener, stop)
        plan = make_plan(before, settings, photos, backbone, lambda message: listener(events.Warned(message)), follower)
    if plan.num_training_images < MIN_IMAGES:
        raise DataError(f"one image is too little to learn from; give {MIN_IMAGES} or more (in {photos.title})")
    if max_drop is not None and plan.uncompared:
        listener(events.Warned(_unwatched(plan.uncompared)))
    engine = _engine(plan)
    with explained_memory_errors(engine.device, plan.batch_size), explained_indeterminism():
        method = _method(plan, engine)
        intake, names = plan.intake, plan.intake.class_names
        exemplars = method.memory.exemplars(names)
        task = Task(len(plan.task_sizes), intake.num_known, intake.num_new, intake.train, exemplars)
        if has_forecast or minutes is not None:
            ahead = forecast(plan, method, task, engine)
            if minutes is not None:
                kept = work.setting("epochs_scale") if work else None  # of the same learn, interrupted
                before_training = of_first(ahead.seconds_before)  # all processes train equally long
                fitted = plan.within(60 * minutes, before_training, of_first(ahead.seconds) - before_training)
                plan = plan.with_epochs_scale(kept) if kept else fitted
                method = _method(plan, engine)
                ahead = forecast(plan, method, task, engine)
            listener(events.LearnPlanned(plan.lines(), ahead.seconds, ahead.num_bytes))
            listener = LearnClock(listener, ahead)
        start = fingerprint(plan, method.workplace.unlabeled) if work else {}
        state = (work.progress(start, listener) if work else None) or TaskState(task.index)
        began -= state.seconds
        trainer = _trainer(plan, engine, listener, stop)
        trainer.stop_if_asked()
        barrier()  # nobody writes before all have read
        save = partial(state.save, work.checkpoints, {"learning": start}, listener) if work else None
        trained = train(
            trainer, method, task, plan.held_out, state, save, plan.backbone.is_pretrained, settings.preset != "paper"
        )
        after = _knowledge(plan, method)
        classifier = after.classifier(engine.device, temperature=1.0)
        scores = scores_of_all(classifier, plan.held_out.stack, engine)
        temperature = fit_temperature(scores, plan.held_out.labels)
        familiarity = _familiarity(plan, method, classifier, scores, temperature, engine)
        checks = _checks(plan, scores, scores_of_all(classifier, plan.exemplars_before.stack, engine), engine)
    report = _report(plan, method, after, trained, checks, temperature, time.monotonic() - began)
    reason = None if max_drop is None else problem(checks, max_drop) or report.loss_of_new(max_drop)
    entry = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "foster": __version__,
        "source": photos.title.strip("'").rsplit("/", 1)[-1],
        "preset": settings.preset,
        "held_out_share": settings.held_out_share,
        "trained_from": dict(intake.trained_from),
        "epochs": trained.epochs,
        "batch_size": plan.batch_size,
        "device": str(engine.device),
        "unknown_threshold": familiarity.threshold if familiarity else None,
        **report.record(),
    }
    after = replace(
        after,
        temperature=report.temperature,
        num_calibration_images=report.num_calibration_images,
        familiarity=familiarity,
        history=(*after.history, entry),
    )
    # A schedule that was fitted to a time is that of this learn alone.
    resolved = plan.resolved().model_copy(update={"epochs_scale": settings.epochs_scale})
    learned = Learned(after, resolved, report)
    if reason:
        raise RefusedError(reason, learned)
    return learned


def _engine(plan: Plan) -> Engine:
    settings = engine_settings(plan.settings.engine, plan.backbone.is_own)
    if plan.is_short and settings.compile == "auto":
        settings = settings.model_copy(update={"compile": "off"})
    engine = build_engine(settings, plan.settings.device, plan.preprocessing.mean, plan.preprocessing.std)
    if plan.is_short:
        torch.backends.cudnn.benchmark = False
    if plan.trunk is None:
        return engine
    views = TrunkViews(
        copy.deepcopy(plan.trunk).to(engine.device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        Normaliser(engine.mean, engine.std, engine.device),
        engine.device,
        plan.augmentation,
        plan.num_views,
        plan.settings.seed,
    )
    return replace(engine, views=views)


def _method(plan: Plan, engine: Engine) -> Method[Any]:
    """The method as it stands before this `learn`."""
    settings = plan.settings
    options = plan.options
    memory = ExemplarMemory(per_class=plan.exemplar_quota) if options.uses_memory else ExemplarMemory()
    backbone = plan.backbone.make
    workplace = Workplace(backbone, settings.seed, engine.infer, engine.device, settings.selection, plan.unlabeled)
    method = method_class(settings.method)(options, memory, workplace)
    if plan.before is not None:
        memory.hold_those_of(plan.before.exemplars)
        method.network = copy.deepcopy(plan.before.network).to(engine.device)
    return method


def _trainer(plan: Plan, engine: Engine, listener: events.Listener, stop: StopRequest) -> Trainer:
    seed, minutes, num_tasks = plan.settings.seed, plan.settings.checkpoint_minutes, len(plan.task_sizes) + 1
    return Trainer(engine, plan.augmentation, plan.batch_size, seed, listener, stop, minutes, num_tasks)


def _knowledge(plan: Plan, method: Method[Any]) -> Knowledge:
    """What is known once the method has been trained; calibration and history follow."""
    intake = plan.intake
    grew = has_own_phases(method, intake.num_new)
    held_out = kept_held_out(plan.held_out, plan.held_out_quota)
    return Knowledge(
        class_names=intake.class_names,
        task_sizes=(*plan.task_sizes, intake.num_new) if grew else plan.task_sizes,
        method=plan.settings.method,
        backbone=plan.backbone.name,
        preprocessing=plan.preprocessing,
        network=method.network,
        trunk=plan.trunk,
        memories=Memories(lambda: method.memory, lambda: held_out),
        temperature=1.0,
        num_calibration_images=0,
        history=plan.before.history if plan.before else (),
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
            then = scores_of_all(old, images.stack, engine).argmax(1).numpy() if old else None
            checks.append(compare(kind, images.labels.numpy(), then, now.argmax(1).numpy(), names, num_known))
    return tuple(checks)


def _familiarity(
    plan: Plan,
    method: Method[Any],
    classifier: Classifier,
    scores: Tensor,
    temperature: float | None,
    engine: Engine,
) -> Familiarity | None:
    """What is usual for known things, from what was trained on and, for the threshold, from what was held out."""
    if not temperature:
        return None
    trained = concatenate(plan.intake.train, plan.exemplars_before)
    features = engine.infer(method.network, trained.stack).features
    held_out = probabilities(scores, temperature), engine.infer(method.network, plan.held_out.stack).features
    return Familiarity.fitted(features, trained.labels, held_out)


def _report(
    plan: Plan,
    method: Method[Any],
    after: Knowledge,
    trained: Trained,
    checks: tuple[UpdateCheck, ...],
    fitted: float | None,
    seconds: float,
) -> LearnReport:
    intake = plan.intake
    accuracies = dict(trained.accuracies)
    result = next((check.accuracy for check in checks if check.kind == "held-out"), None)
    if result is not None:
        accuracies[method.result_name] = result
    before = plan.before
    # A network that nobody measured is better judged as the one before it than not at all.
    kept = (before.temperature, before.num_calibration_images) if before else (1.0, 0)
    temperature, num_calibration_images = (fitted, len(plan.held_out)) if fitted else kept
    return LearnReport(
        new_classes=after.class_names[intake.num_known :],
        more_of=intake.more_of,
        num_trained=len(intake.train),
        num_held_out=len(intake.held_out),
        num_repeated=intake.num_repeated,
        kept_elsewhere=intake.kept_elsewhere,
        shared=intake.shared,
        empty_classes=intake.empty_classes,
        passed_over=intake.passed_over,
        unreadable=intake.unreadable,
        num_exemplars=after.exemplars.num_images,
        seconds=seconds,
        temperature=temperature,
        num_calibration_images=num_calibration_images,
        variants=accuracies,
        new_variants=trained.new_accuracies,
        restarts=trained.restarts,
        checks=checks,
        uncompared=plan.uncompared,
    )


def _unwatched(names: tuple[str, ...]) -> str:
    what = f"class '{names[0]}'" if len(names) == 1 else f"{len(names)} known classes, such as '{names[0]}',"
    return f"there is no image of {what} to compare before and after: max_drop does not protect what is not compared"
