"""How long a run will take: from runs that were timed on the same device, or from a few steps made now."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError

from foster.data.images import ImageSet, as_stack
from foster.data.task import Task
from foster.errors import FosterError
from foster.experiment.folder import RESULTS, RunFolder
from foster.experiment.parts import (
    build_engine,
    chosen_backbone,
    describe_environment,
    engine_settings,
    planned_engine,
    surveyed_facts,
)
from foster.experiment.plan import Plan, TimeEstimate, make_plan
from foster.settings.base import make
from foster.settings.engine import EngineSettings
from foster.settings.experiment import Settings
from foster.training.engine import Engine
from foster.training.phase import Phase
from foster.training.task import seconds_an_epoch

MOST_RUNS = 200
"""The newest runs that are looked at for their times."""

STEPS_AN_EPOCH = {"cpu": 1, "cuda": 50}
"""Of the short epochs that are timed."""


class _Timed(BaseModel):
    """What of a results file tells how fast its run was."""

    settings: dict[str, Any]
    environment: dict[str, Any]
    task_seconds: list[float] = Field(min_length=1)


def timed_plan(settings: Settings, folder: Path) -> Plan:
    """The plan, with its time where a run below `folder` tells it."""
    plan = make_plan(settings)
    return replace(plan, time=_recorded_time(plan, folder))


def _recorded_time(plan: Plan, folder: Path) -> TimeEstimate | None:
    """From the newest run below `folder` of the same method, network, batch and images on the same device, if any.

    A run with the same settings of the method is taken before others, and its time includes all that is not training.
    """
    try:
        here = _machine(_environment(plan.settings))
    except FosterError:
        return None  # there is no such device here
    alike = [
        (path, timed, settings)
        for path, timed, settings in _timed_runs(folder)
        if _machine(timed.environment) == here and _work(settings) == _work(plan.settings)
    ]
    if not alike:
        return None
    own = plan.settings.options
    path, timed, settings = next((run for run in alike if run[2].options == own), alike[0])
    tasks = make_plan(settings).tasks[: len(timed.task_seconds)]
    pace = sum(task.num_steps for task in tasks) / max(sum(timed.task_seconds), 1e-9)
    return TimeEstimate(plan.total_steps / pace, pace, f"{path} on {here['device']}")


def measured_plan(settings: Settings) -> Plan:
    """The plan with the time of its steps: some of each phase are made now, in the first two tasks and in the last.

    Evaluation and the choice of exemplars are not in it.
    """
    facts = surveyed_facts(settings)
    engine = build_engine(_computing(settings), settings.device, facts.mean, facts.std)
    last = len(settings.sizes_of_tasks(facts)) - 1
    paces: dict[str, dict[int, float]] = defaultdict(dict)

    def look_at(task: Task, phase: Phase) -> None:
        if task.index in (0, 1, last) or phase.name not in paces:
            paces[phase.name][task.index] = _seconds_a_step(phase, task.index, settings, engine, facts.image_size)

    plan = make_plan(settings, look_at, engine.device)
    seconds = sum(
        steps * float(np.interp(task.index, list(paces[name]), list(paces[name].values())))
        for task in plan.tasks
        for name, _, steps in task.phases
    )
    device = describe_environment(engine)["device"]
    return replace(plan, time=TimeEstimate(seconds, plan.total_steps / seconds, f"steps made now on {device}"))


def _seconds_a_step(phase: Phase, task: int, settings: Settings, engine: Engine, image_size: int) -> float:
    """How long one step of the phase takes, with noise for images."""
    most = STEPS_AN_EPOCH[engine.device.type] * settings.batch_size

    def noise(images: ImageSet) -> ImageSet:
        count = min(most, len(images))
        pixels = torch.randint(256, (count, 3, image_size, image_size), dtype=torch.uint8)
        return replace(images.select(torch.arange(count) * len(images) // count), stack=as_stack(pixels))

    data = noise(phase.data)
    phase = replace(phase, replay=noise(phase.replay) if phase.replay else None)
    seconds = seconds_an_epoch(phase, data, task, engine, settings.augmentation_settings, settings.batch_size)
    return seconds / -(-len(data) // settings.batch_size)


def _timed_runs(folder: Path) -> Iterator[tuple[Path, _Timed, Settings]]:
    """The runs below `folder` that tell their time, the newest first."""
    paths = [Path(path) for path, _, names in os.walk(folder) if RESULTS in names and Path(path, RESULTS).is_file()]
    for path in sorted(paths, key=lambda path: -(path / RESULTS).stat().st_mtime)[:MOST_RUNS]:
        try:
            timed = _Timed.model_validate(RunFolder(path).read_results())
            yield path, timed, make(Settings, timed.settings, str(path))
        except (FosterError, ValidationError):
            continue  # a damaged run tells nothing


def _work(settings: Settings) -> tuple[Any, ...]:
    """What decides how long a step takes, on one machine."""
    size = settings.facts.image_size
    return settings.method, settings.backbone, settings.batch_size, size, settings.augmentation_settings


def _environment(settings: Settings) -> dict[str, Any]:
    facts = settings.facts
    environment = describe_environment(planned_engine(_computing(settings), settings.device, facts.mean, facts.std))
    return environment | ({"cpu_threads": settings.engine.threads} if settings.engine.threads else {})


def _computing(settings: Settings) -> EngineSettings:
    """The accelerators as a run with this backbone has them."""
    return engine_settings(settings.engine, chosen_backbone(settings, is_trained=True).is_own)


def _machine(environment: dict[str, Any]) -> dict[str, Any]:
    """What of an environment decides how fast it is. Beside a GPU, the CPU's threads do next to nothing."""
    keys = ["device", "precision", "compile", "capture", "kernels"]
    if environment.get("device") == "CPU":
        keys.append("cpu_threads")
    return {key: environment.get(key) for key in keys}
