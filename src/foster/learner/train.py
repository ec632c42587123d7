"""A `learn` whose network is trained, in the order in which it happens: plan, train, measure.

The earlier knowledge is not changed: a new one is returned.
"""

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from foster import events
from foster.data.images import ImageSet, Stack, concatenate, digest, images_digest
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import DECODED_AT_ONCE, Resizing
from foster.data.task import Task
from foster.errors import SettingsError
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import ranks
from foster.experiment.engine import build_engine, engine_settings
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier
from foster.learner.closed_form import frozen_network, stored_features
from foster.learner.familiarity import Familiarity
from foster.learner.feature_store import FeatureStore
from foster.learner.knowledge import KeptImages, Knowledge
from foster.learner.plan import Plan
from foster.learner.reports import CLOSED_FORM_VARIANT, LearnReport, UpdateCheck, compare
from foster.learner.training_plan import TrainingPlan, kept_held_out, plan_training
from foster.methods import method_class
from foster.methods.base import Context, Method, checked_phases
from foster.methods.refresh import phases_of, trains_phases
from foster.networks.adapted import choose_backbone
from foster.networks.statistics import discriminants_of_few
from foster.settings.fit import smallest_batch_for
from foster.settings.learner_defaults import PRETRAINED, frozen_side_for
from foster.system.signals import StopRequest
from foster.training.engine import Engine, find_device
from foster.training.memory_errors import explained_memory_errors
from foster.training.phase import Evaluate
from foster.training.task import TaskState, Trainer


def learn_by_training(chosen: Plan) -> tuple[Knowledge, LearnReport]:
    """Learn the classes of the photos by the phases of a method."""
    plan = plan_training(chosen)
    plan.listener(events.LearnPlanned(plan.summary()))
    engine = _engine(plan)
    with explained_memory_errors(engine.device, plan.batch_size):
        method = _method(plan, engine)
        exemplars = method.memory.exemplars(plan.class_names)
        task = Task(len(plan.task_sizes), plan.num_known, plan.num_new, plan.train, exemplars)
        trained = train(plan, method, task, engine)
        return outcome(plan, method, trained, engine)


def _engine(plan: TrainingPlan) -> Engine:
    settings = engine_settings(plan.settings.engine, plan.backbone.is_builtin)
    if plan.is_short and settings.compile == "auto":
        settings = settings.model_copy(update={"compile": "off"})
    engine = build_engine(settings, plan.settings.device, plan.preprocessing.mean, plan.preprocessing.std)
    if plan.is_short:
        torch.backends.cudnn.benchmark = False
    return engine


def _method(plan: TrainingPlan, engine: Engine) -> Method[Any]:
    """The method with the network and the memory from before this `learn`."""
    settings, options = plan.settings, plan.options
    memory = ExemplarMemory(per_class=plan.quotas[0]) if options.uses_memory else ExemplarMemory()
    place = (engine.infer, engine.device, settings.selection, None, engine.normalised)
    method = method_class(settings.method)(options, memory, Context(plan.backbone.make, settings.seed, *place))
    if plan.trained is not None:
        memory.hold_those_of(plan.trained.exemplars.memory)
        method.network = copy.deepcopy(plan.trained.network).to(engine.device)
    return method


class Trained(NamedTuple):
    """The epochs of every phase, and of every variant of the method the accuracy on held-out images."""

    epochs: Mapping[str, int]
    accuracies: Mapping[str, float]
    seconds_before: float
    """The seconds of earlier attempts, which were interrupted."""


def train(plan: TrainingPlan, method: Method[Any], task: Task, engine: Engine) -> Trained:
    """Train the method, from the beginning or from the checkpoint in the work folder."""
    work, settings, listener, num_tasks = plan.work, plan.settings, plan.listener, len(plan.task_sizes) + 1
    start = fingerprint(plan) if work else {}
    state = (work.progress(start, listener) if work else None) or TaskState(task.index)
    minutes, seed, smallest = settings.checkpoint_minutes, settings.seed, smallest_batch_for(plan.batch_size)
    place = (engine, plan.augmentation, plan.batch_size)
    trainer = Trainer(*place, seed, listener, plan.stop, minutes, num_tasks, smallest)
    trainer.stop_if_requested()
    save = partial(state.save, work.checkpoints, {"learning": start}, listener) if work else None
    accuracies: dict[str, float] = {}

    def note_accuracy(wanted: Evaluate) -> None:
        if len(plan.held_out):
            accuracies[wanted.variant] = _accuracy(trainer, wanted, task, plan.held_out)

    trainer.begin(task)
    if state.phase:
        listener(state.resumed)
    epochs = trainer.learn(checked_phases(method, phases_of(method, task)), state, note_accuracy, save)
    return Trained(epochs, accuracies, state.seconds_before)


def fingerprint(plan: TrainingPlan) -> dict[str, Any]:
    """What one `learn` starts from, as plain data: the settings, and hashes of the images and of the knowledge before.
    Equal fingerprints lead to equal weights. The device and the names of files are not part of it."""
    known = ""
    if plan.trained is not None:
        kept = {"exemplars": plan.trained.exemplars, "held-out": plan.trained.held_out}
        memories = {name: images.memory.state() for name, images in kept.items()}
        tensors = dict(plan.trained.network.state_dict())
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


def outcome(plan: TrainingPlan, method: Method[Any], trained: Trained, engine: Engine) -> tuple[Knowledge, LearnReport]:
    """The knowledge after the training, calibrated and with its history, and the complete report."""
    before, earlier = plan.before, plan.trained
    after = Knowledge(
        class_names=plan.class_names,
        task_sizes=(*plan.task_sizes, plan.num_new) if trains_phases(method, plan.num_new) else plan.task_sizes,
        method=plan.settings.method,
        backbone=plan.backbone.name,
        preprocessing=plan.preprocessing,
        network=method.network,
        exemplars=KeptImages.of_memory(method.memory, len(plan.class_names), plan.resizing),
        held_out=KeptImages(kept_held_out(plan.held_out, plan.quotas[1]), plan.resizing),
        # If nothing is held out, the earlier calibration is better than none.
        temperature=earlier.temperature if earlier else 1.0,
        num_calibration_images=earlier.num_calibration_images if earlier else 0,
        history=before.history if before else (),
    )
    classifier = after.classifier(engine.device)
    scores = classifier.all_scores(plan.held_out.stack)
    if temperature := fit_temperature(scores, plan.held_out.labels):
        familiarity = _familiarity(plan, method, probabilities(scores, temperature), engine)
        num_images = len(plan.held_out)
        after = replace(after, temperature=temperature, num_calibration_images=num_images, familiarity=familiarity)
    checks = _checks(plan, scores, classifier.all_scores(plan.exemplars_before.stack), engine)
    variants, result = dict(trained.accuracies), method.result_name
    measured = next((check.accuracy for check in checks if check.kind == "held-out"), None)
    if measured is not None:
        variants[result] = measured
    store, beside = _closed_form_beside(plan)
    if beside is not None:
        variants[CLOSED_FORM_VARIANT] = beside
    report = replace(
        plan.report,
        num_trained=len(plan.train),
        num_held_out=len(plan.new_held_out),
        num_exemplars=after.exemplars.num_images,
        seconds=round(time.monotonic() - plan.began + trained.seconds_before, 1),
        temperature=after.temperature,
        epochs=trained.epochs,
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
    """The accuracy before and after, on held-out images and on the exemplars from before."""
    old = plan.before.classifier(engine.device) if plan.before else None

    def check(kind: str, images: ImageSet, now: Tensor) -> UpdateCheck:
        then = old.all_scores(images.stack).argmax(1) if old else None
        return compare(kind, images.labels, then, now.argmax(1), plan.class_names, len(plan.known))

    checks = (check("held-out", plan.held_out, scores), check("exemplar", plan.exemplars_before, exemplar_scores))
    return tuple(check for check in checks if check.classes)


def _familiarity(plan: TrainingPlan, method: Method[Any], held_out: Tensor, engine: Engine) -> Familiarity | None:
    """The familiarity of the trained photos; its threshold comes from the held-out photos and their probabilities `[N,
    C]`."""
    images = concatenate(plan.train, plan.exemplars_before)
    features = engine.infer(method.network, images.stack).features
    of_held_out = engine.infer(method.network, plan.held_out.stack).features
    return Familiarity.fitted(features, images.labels, (held_out, of_held_out))


def _closed_form_beside(plan: TrainingPlan) -> tuple[FeatureStore | None, float | None]:
    """Frozen features and sums of all photos learned so far, and the accuracy of their closed form on held-out images;
    None if there is no pretrained backbone, or no sums over earlier photos."""
    before, classifier = plan.before, _frozen_classifier(plan)
    if classifier is None or (before is not None and before.store is None):
        return None, None
    of_held_out = _frozen_features(classifier, plan.held_out.stack, plan.stop)
    store = before.store if before and before.store else FeatureStore.empty(of_held_out.shape[1])
    stored, ids = store.entries(), plan.train.stack.ids()
    fresh = [k for k, entry in enumerate(zip(plan.train.labels.tolist(), ids, strict=True)) if entry not in stored]
    images = plan.train.select(torch.tensor(fresh, dtype=torch.int64))
    features = _frozen_features(classifier, images.stack, plan.stop)
    per_class, num_classes = plan.settings.features_per_class, len(plan.class_names)
    store = store.added(features, images.labels, [ids[k] for k in fresh], num_classes, per_class)
    if not len(plan.held_out):
        return store, None
    weight, bias = discriminants_of_few(store.statistics)
    answers = (of_held_out.double() @ weight.T + bias).argmax(1)
    return store, class_accuracy(plan.held_out, answers)


def _frozen_classifier(plan: TrainingPlan) -> Classifier | None:
    """The frozen network of a learn in closed form: with this learn's backbone if it is pretrained, else with the
    default one. None if the pretrained weights are not there."""
    choice, resizing = plan.backbone, plan.resizing
    if not choice.is_pretrained:
        # The same size on every device: features of several learns are added up.
        side = frozen_side_for(on_gpu=False)
        resizing = Resizing(side, side)
        choice = choose_backbone(PRETRAINED, resizing.size)
    try:
        network, preprocessing = frozen_network(choice, resizing)
    except SettingsError:  # a bundle has only the name of a file of weights
        return None
    return Classifier(network, preprocessing).to(find_device(plan.settings.device))


def _frozen_features(classifier: Classifier, images: Stack, stop: StopRequest) -> Tensor:
    """The features of images as a learn in closed form would store them."""
    size = classifier.image_size
    parts = [torch.empty(0, classifier.network.feature_size).half()]
    for chunk in images.split(DECODED_AT_ONCE) if len(images) else ():
        stop.raise_if_set()
        seen: Stack | Tensor = chunk
        if chunk.shape[2:] != size:
            pixels = chunk.on_device(torch.device("cpu"))
            seen = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        parts.append(stored_features(classifier.features(seen)))
    return torch.cat(parts)
