"""Which schedule trains which phase, for every method: phase by phase the field of its settings."""

from typing import Any

import pytest
from small_course import new_method, task_of

from foster.methods import method_class
from foster.methods.refresh import refresh
from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS, MethodSettings
from foster.training.phase import Phase

USUAL = [("learn", "first"), ("learn", "later")]
SCHEDULES = {
    "finetune": USUAL,
    "replay": USUAL,
    "lwf": USUAL,
    "icarl": USUAL,
    "bic": [*USUAL, ("correct", "correction")],
    "wa": USUAL,
    "podnet": [*USUAL, ("finetune", "finetune")],
    "coil": USUAL,
    "der": [("learn", "first"), ("expand", "later")],
    "foster": [("learn", "first"), ("boost", "boost"), ("compress", "compress")],
    "joint": [("learn", "first"), ("learn", "first")],
}
"""The phases of the first and the second task in order, each with its schedule."""


def with_telling_schedules(kind: type[MethodSettings]) -> MethodSettings:
    """The method's settings, in which every schedule has a learning rate and a number of epochs of its own."""
    names = [name for name, value in kind() if isinstance(value, FitSettings)]
    return kind(**{name: FitSettings(epochs=k, learning_rate=k / 100) for k, name in enumerate(names, start=1)})


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_every_phase_is_trained_with_its_own_schedule(name: str) -> None:
    settings = with_telling_schedules(METHOD_SETTINGS[name])
    method = new_method(method_class(name), settings)
    found: list[tuple[str, Any]] = []
    for index in range(2):
        found += [(step.name, step.fit) for step in method.phases(task_of(method, index)) if isinstance(step, Phase)]
    assert found == [(phase, getattr(settings, field)) for phase, field in SCHEDULES[name]]
    used = {field for _, field in SCHEDULES[name]}
    assert used == {field for field, value in settings if isinstance(value, FitSettings)}, "none is for nothing"


@pytest.mark.parametrize(("name", "field"), [("replay", "later"), ("der", "later"), ("joint", "first")])
def test_more_of_known_classes_is_trained_with_the_schedule_of_later_tasks(name: str, field: str) -> None:
    settings = with_telling_schedules(METHOD_SETTINGS[name])
    method = new_method(method_class(name), settings)
    task = task_of(method, 0)
    list(method.phases(task))
    (phase,) = refresh(method, task)
    assert isinstance(phase, Phase)
    assert phase.fit == getattr(settings, field)
