"""One `learn`: from what a learner knows and some photos to what it knows afterwards."""

import copy
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from foster import events
from foster.data.augmentation.pipeline import Normaliser
from foster.data.download import Follower
from foster.data.memory import ExemplarMemory
from foster.data.photos.find import Photos
from foster.data.task import Task
from foster.errors import DataError
from foster.experiment.parts import build_engine, engine_settings
from foster.learner.forecast import Forecast, LearnClock, forecast
from foster.learner.knowledge import Change, Knowledge
from foster.learner.make_plan import make_plan
from foster.learner.outcome import outcome
from foster.learner.plan import Plan
from foster.learner.reports import LearnReport
from foster.learner.training import Trained, train
from foster.learner.update_check import problem
from foster.learner.work_folder import WorkFolder, fingerprint
from foster.methods import method_class
from foster.methods.base import Method, Workplace
from foster.networks.adapted import ModuleLike
from foster.settings.learner import LearnerSettings
from foster.system.signals import StopRequest
from foster.training.engine import Engine, find_device
from foster.training.memory_errors import explained_memory_errors
from foster.training.task import TaskState, Trainer
from foster.training.views import TrunkViews

MIN_IMAGES = 2
"""One image alone has no statistics to normalise it by."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one `learn` starts from, and how it is to go.

    With `max_drop` it is a problem where the known classes lose more points than that, or the new ones by compression.
    With `work`, a folder that is held, what was trained is saved there, and what is found there is continued. Who
    `asked` to listen is told first what will be done and how long it takes, and the time left covers all of it;
    `minutes` also shortens or stretches the schedules to that time.
    """

    before: Knowledge | None
    settings: LearnerSettings
    photos: Photos
    backbone: ModuleLike | None
    max_drop: float | None
    minutes: float | None
    asked: events.Listener | None
    stop: StopRequest
    work: WorkFolder | None

    def learn(self) -> Change[LearnReport]:
        """Learn the classes of the photos, new ones and more of known ones."""
        began = time.monotonic()
        listener = self.asked or _pass_on_warnings
        plan = self._plan(listener)
        engine = _engine(plan)
        with explained_memory_errors(engine.device, plan.batch_size):
            method = _method(plan, engine)
            intake = plan.intake
            exemplars = method.memory.exemplars(intake.class_names)
            task = Task(len(plan.task_sizes), intake.num_known, intake.num_new, intake.train, exemplars)
            if self.asked or self.minutes is not None:
                plan, method, ahead = _foreseen(plan, method, task, engine, self.minutes, self.work)
                listener(events.LearnPlanned(plan.lines(), ahead.seconds, ahead.num_bytes))
                listener = LearnClock(listener, ahead)
            trained, earlier_seconds = self._train(plan, method, task, engine, listener)
            after, report = outcome(plan, method, trained, engine, self.photos.title, began - earlier_seconds)
        # A schedule that was fitted to a time is that of this learn alone.
        resolved = plan.resolved().model_copy(update={"epochs_scale": self.settings.epochs_scale})
        limit = self.max_drop
        lost = None if limit is None else problem(report.checks, limit) or report.loss_of_new(limit)
        return Change(after, report, lost, resolved)

    def _plan(self, listener: events.Listener) -> Plan:
        """The photos read and everything decided; what may not be meant is told."""
        photos, follower = self.photos, Follower(listener, self.stop)
        with explained_memory_errors(find_device(self.settings.device)):
            plan = make_plan(self.before, self.settings, photos, self.backbone, follower)
        if plan.num_training_images < MIN_IMAGES:
            raise DataError(f"one image is too little to learn from; give {MIN_IMAGES} or more (in {photos.title})")
        if self.max_drop is not None and plan.uncompared:
            names = plan.uncompared
            what = f"class '{names[0]}'" if len(names) == 1 else f"{len(names)} known classes, such as '{names[0]}',"
            follower.warn(
                f"there is no image of {what} to compare before and after: max_drop does not protect what is not "
                "compared"
            )
        return plan

    def _train(
        self, plan: Plan, method: Method[Any], task: Task, engine: Engine, listener: events.Listener
    ) -> tuple[Trained, float]:
        """Train the method, from the beginning or from what `work` holds; and the seconds that the latter took."""
        work, settings, num_tasks = self.work, plan.settings, len(plan.task_sizes) + 1
        start = fingerprint(plan, method.workplace.unlabeled) if work else {}
        state = (work.progress(start, listener) if work else None) or TaskState(task.index)
        earlier_seconds = state.seconds
        minutes, seed = settings.checkpoint_minutes, settings.seed
        trainer = Trainer(engine, plan.augmentation, plan.batch_size, seed, listener, self.stop, minutes, num_tasks)
        trainer.stop_if_asked()
        save = partial(state.save, work.checkpoints, {"learning": start}, listener) if work else None
        return train(trainer, method, task, plan, state, save), earlier_seconds


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


def _pass_on_warnings(event: events.Event) -> None:
    """Where nobody listens, a warning is one of Python's."""
    if isinstance(event, events.Warned):
        warnings.warn(event.message, stacklevel=2)
