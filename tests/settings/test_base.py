"""Settings from plain data: defaults inside sections, budgets, and what is said where a value does not fit."""

from pathlib import Path

import pytest
from refusals import refused

from foster.settings.augmentation import Augmentation
from foster.settings.base import flat
from foster.settings.datasets import PhotoSettings, SyntheticSettings
from foster.settings.engine import EngineSettings
from foster.settings.experiment import (
    Settings,
    load_settings,
)
from foster.settings.fit import FitSettings, Frozen
from foster.settings.learner import LearnerSettings
from foster.settings.methods import METHOD_SETTINGS, FosterSettings, ReplaySettings


def test_none_takes_a_memory_budget_away() -> None:
    settings = load_settings("digits", ["memory_total=none", "memory_per_class=5"])
    assert (settings.memory_total, settings.memory_per_class) == (None, 5)
    assert "memory_per_class" in refused("memory_total=none")
    assert load_settings("digits", ["memory_total=none", "method=finetune"]).memory_total is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("order_seed", "3"),
        ("learning_rate_scale", "0.5"),
        ("foster.boost.max_gradient", "1.0"),
        ("augmentation.resized_crop", "[0.2, 1.0]"),
    ],
)
def test_none_takes_any_optional_setting_away(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(load_settings("digits", [f"{key}={value}"]).toml())
    assert key in flat(load_settings(str(path)).nested())
    assert flat(load_settings(str(path), [f"{key}=none"]).complete())[key] is None


def test_a_key_of_foster_whose_default_a_method_changes_has_no_effect_on_that_method(monkeypatch: pytest.MonkeyPatch):
    class Mine(FosterSettings):
        beta_boost: float = 0.9

    monkeypatch.setitem(METHOD_SETTINGS, "mine", Mine)
    settings = load_settings("digits", ["method=mine", "foster.beta_boost=0.5", "foster.compress.epochs=7"])
    assert (settings.options.beta_boost, settings.options.compress.epochs) == (0.9, 7)
    both = load_settings("digits", ["method=mine", "mine.compress.epochs=9", "foster.compress.epochs=7"])
    assert both.options.compress.epochs == 9, "its own section is laid over that of foster"
    assert "mine.beta_boost" in settings.why_unused("foster.beta_boost")
    used = ["mine.beta_boost", "foster.compress.epochs", "foster.boost.epochs", "mine.boost"]
    assert not any(map(settings.why_unused, used))


def test_a_part_of_a_schedule_is_changed_without_losing_the_rest(tmp_path: Path) -> None:
    options = load_settings("digits", ["foster.boost.epochs=3"]).options
    assert options.boost == FitSettings(epochs=3, learning_rate=0.1, weight_decay=5e-4)
    assert options.compress == FosterSettings().compress
    path = tmp_path / "mine.toml"
    path.write_text(
        'method = "replay"\ndataset = "digits"\nincrement = 2\nmemory_total = 50\n[replay.later]\nepochs = 9\n'
    )
    changed = load_settings(str(path), ["replay.later.learning_rate=0.5"]).options
    assert changed.later == ReplaySettings().later.model_copy(update={"epochs": 9, "learning_rate": 0.5})


def test_a_schedule_that_becomes_cosine_lets_its_milestones_go() -> None:
    options = load_settings("digits", ["method=replay", "replay.later.schedule=cosine"]).options
    assert (options.later.schedule, options.later.milestones, options.later.epochs) == ("cosine", (), 70)


def test_every_key_has_a_meaning_for_the_lists_of_keys() -> None:
    tables = (Settings, LearnerSettings, FitSettings, EngineSettings, PhotoSettings, SyntheticSettings)
    for model in (*tables, Augmentation, *METHOD_SETTINGS.values()):
        nameless = [
            name
            for name, field in model.model_fields.items()
            if not field.description
            and not (isinstance(field.annotation, type) and issubclass(field.annotation, Frozen))
        ]
        assert not nameless, f"{model.__name__}: {nameless}"
