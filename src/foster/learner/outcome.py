"""What came of a learn: how sure its answers may be, what is usual for known things, before and after, its report."""

import time
from dataclasses import replace
from typing import Any

from torch import Tensor

from foster.data.images import Stack, concatenate
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier, scores_of_all
from foster.learner.familiarity import Familiarity
from foster.learner.held_out import kept_held_out
from foster.learner.knowledge import Knowledge, Memories
from foster.learner.plan import Plan
from foster.learner.reports import LearnReport
from foster.learner.training import Trained, has_own_phases
from foster.learner.update_check import UpdateCheck, compare
from foster.methods.base import Method
from foster.training.engine import Engine


def outcome(
    plan: Plan, method: Method[Any], trained: Trained, engine: Engine, title: str, began: float
) -> tuple[Knowledge, LearnReport]:
    """What is known once the method has been trained, with its history, and what there is to tell of it.

    `title` names the photos; `began` is when the learn did, on the monotonic clock.
    """
    after = _knowledge(plan, method)
    classifier = after.classifier(engine.device, temperature=1.0)
    scores = scores_of_all(classifier, plan.held_out.stack, engine)
    temperature = fit_temperature(scores, plan.held_out.labels)
    if temperature:
        held_out = probabilities(scores, temperature)
        familiarity = _familiarity(plan, method, classifier, held_out, engine)
        num_images = len(plan.held_out)
        after = replace(after, temperature=temperature, num_calibration_images=num_images, familiarity=familiarity)
    checks = _checks(plan, scores, scores_of_all(classifier, plan.exemplars_before.stack, engine), engine)
    seconds = round(time.monotonic() - began, 1)  # here, so that whatever tells of it later tells the same
    report = _report(plan, method, after, trained, checks, seconds)
    entry = {
        "source": title.strip("'").rsplit("/", 1)[-1],
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
    return Knowledge(
        class_names=intake.class_names,
        task_sizes=(*plan.task_sizes, intake.num_new) if grew else plan.task_sizes,
        method=plan.settings.method,
        backbone=plan.backbone.name,
        preprocessing=plan.preprocessing,
        network=method.network,
        trunk=plan.trunk,
        memories=Memories(lambda: method.memory, lambda: held_out),
        temperature=before.temperature if before else 1.0,
        num_calibration_images=before.num_calibration_images if before else 0,
        history=before.history if before else (),
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
    plan: Plan, method: Method[Any], classifier: Classifier, held_out: Tensor, engine: Engine
) -> Familiarity | None:
    """What is usual for known things, from what was trained on and, for the threshold, from what was held out and its
    probabilities `[N, C]`."""

    def features_of(images: Stack | Tensor) -> Tensor:
        return engine.infer(method.network, images).features

    trained = concatenate(plan.intake.train, plan.exemplars_before)
    features = features_of(trained.stack)
    return Familiarity.fitted(features, trained.labels, (held_out, features_of(plan.held_out.stack)))


def _report(
    plan: Plan,
    method: Method[Any],
    after: Knowledge,
    trained: Trained,
    checks: tuple[UpdateCheck, ...],
    seconds: float,
) -> LearnReport:
    intake = plan.intake
    accuracies = dict(trained.accuracies)
    result = next((check.accuracy for check in checks if check.kind == "held-out"), None)
    if result is not None:
        accuracies[method.result_name] = result
    return LearnReport(
        **vars(intake.inventory),
        new_classes=after.class_names[intake.num_known :],
        num_trained=len(intake.train),
        num_held_out=len(intake.held_out),
        num_exemplars=after.exemplars.num_images,
        seconds=seconds,
        temperature=after.temperature,
        num_calibration_images=after.num_calibration_images,
        variants=accuracies,
        new_variants=trained.new_accuracies,
        restarts=trained.restarts,
        checks=checks,
        uncompared=plan.uncompared,
    )
