"""Methods by name: which are found, which can be registered, and the schedule of each phase of all of them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from small_course import new_method, task_of
from torch import Tensor

from foster.errors import SettingsError
from foster.methods import method_class, register_method
from foster.methods.base import Method
from foster.methods.refresh import refresh
from foster.methods.replay import Replay
from foster.settings import plugins
from foster.settings.experiment import load_settings
from foster.settings.fit import FitSettings
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS, ReplaySettings
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
    "slda": [("learn", "first")],
    "ridge": [("learn", "first")],
}
"""The phases of the first and the second task in order, each with its schedule."""

PARTS = {"bic": {"learn", "correct"}, "podnet": {"finetune"}}
"""The phases that learn from a part of the task's images; all others see every new image and every exemplar."""


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_ORIGINS", {})
    before = dict(METHOD_SETTINGS)
    yield
    METHOD_SETTINGS.clear()
    METHOD_SETTINGS.update(before)


class OwnSettings(ReplaySettings):
    strength: float = 1.0


def test_a_method_that_extends_ours_has_settings_of_its_own() -> None:
    @register_method("stronger", OwnSettings)
    class Stronger(Replay):
        """Replay, more so."""

    assert method_class("stronger") is Stronger
    assert method_class("replay") is Replay
    settings = load_settings("digits", ["method=stronger", "stronger.strength=2"])
    assert settings.options == OwnSettings(strength=2)


@pytest.mark.parametrize("settings", [None, MethodSettings, ReplaySettings, int, ReplaySettings()])
def test_a_method_without_settings_of_its_own_is_refused(settings: Any) -> None:
    class Plain(Replay):
        """Says nothing of its settings."""

    with pytest.raises(SettingsError, match=r"'plain'.*class Mine\(Method"):
        register_method("plain", settings)(Plain)
    assert "plain" not in METHOD_SETTINGS


def test_a_name_that_is_taken_is_refused_and_leaves_all_as_it_was() -> None:
    class Other(Method[Any]):
        """Another method of the name."""

    with pytest.raises(SettingsError, match="'replay'"):
        register_method("replay", OwnSettings)(Other)
    assert method_class("replay") is Replay
    assert OwnSettings.built_by is not Other


def with_telling_schedules(kind: type[MethodSettings]) -> MethodSettings:
    """The method's settings, in which every schedule has a learning rate and a number of epochs of its own."""
    names = [name for name, value in kind() if isinstance(value, FitSettings)]
    schedules = {name: FitSettings(epochs=k, learning_rate=k / 100) for k, name in enumerate(names, start=1)}
    return small(kind(**schedules))


def small(settings: MethodSettings) -> MethodSettings:
    """Without the 8,192 random features of ridge regression."""
    return settings.model_copy(update={"num_features": 32} if "num_features" in type(settings).model_fields else {})


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_every_phase_is_trained_with_its_own_schedule_and_images(name: str) -> None:
    settings = with_telling_schedules(METHOD_SETTINGS[name])
    method = new_method(method_class(name), settings)
    found: list[tuple[str, Any]] = []
    for index in range(2):
        task = task_of(method, index)
        phases = [part for part in method.phases(task) if isinstance(part, Phase)]
        found += [(phase.name, phase.fit) for phase in phases]
        parts = {phase.name for phase in phases if phase.data is not task.training}
        assert parts <= PARTS.get(name, set()), f"a phase sees other images than task.training: add '{name}' to PARTS"
    assert (task.exemplars is not None) == (settings.uses_memory or settings.keeps_all_images)
    assert name in SCHEDULES, f"add the phases of '{name}' to SCHEDULES above"
    assert found == [(phase, getattr(settings, field)) for phase, field in SCHEDULES[name]]
    used = {field for _, field in SCHEDULES[name]}
    assert used == {field for field, value in settings if isinstance(value, FitSettings)}, "none is for nothing"


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_first_weights_depend_on_the_seed_and_on_nothing_that_ran_before(name: str) -> None:
    def first_weights(number: int) -> list[Tensor]:
        torch.default_generator.manual_seed(number)
        method, found = new_method(method_class(name), small(METHOD_SETTINGS[name]())), []
        for index in range(2):
            phases = [part for part in method.phases(task_of(method, index)) if isinstance(part, Phase)]
            found += [value for phase in phases for value in phase.network.state_dict().values()]
        return found

    assert all(torch.equal(one, other) for one, other in zip(first_weights(1), first_weights(2), strict=True))


@pytest.mark.parametrize(("name", "field"), [("replay", "later"), ("der", "later"), ("joint", "first")])
def test_more_of_known_classes_is_trained_with_the_schedule_of_later_tasks(name: str, field: str) -> None:
    settings = with_telling_schedules(METHOD_SETTINGS[name])
    method = new_method(method_class(name), settings)
    task = task_of(method, 0)
    list(method.phases(task))
    (phase,) = refresh(method, task)
    assert isinstance(phase, Phase)
    assert phase.fit == getattr(settings, field)
