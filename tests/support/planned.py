"""That a run does what was planned."""

from collections.abc import Sequence
from typing import Any

from foster.events import Event, PhaseStarted, TaskStarted
from foster.experiment.plan import Plan


def assert_is_planned(plan: Plan, results: dict[str, Any], told: Sequence[Event]) -> None:
    """The results of the run, and the events that it told, are those of its plan."""
    tasks = [event for event in told if isinstance(event, TaskStarted)]
    phases = [event for event in told if isinstance(event, PhaseStarted)]
    assert [(event.num_known + event.num_new, event.num_images) for event in tasks] == [
        (task.num_total, task.new_images + task.exemplars) for task in plan.tasks
    ]
    assert [(event.task, event.phase, event.epochs, event.epochs * event.steps) for event in phases] == [
        (task.index, *phase) for task in plan.tasks for phase in task.phases
    ]
    assert results["params_by_task"] == [task.params for task in plan.tasks]
    assert results["memory_bytes"] == plan.memory_bytes
    assert plan.total_epochs == sum(event.epochs for event in phases)
    assert plan.training_bytes > plan.memory_bytes >= 0
