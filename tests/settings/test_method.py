"""What the settings of every method can do."""

from pathlib import Path

import pytest
from pydantic import Field

from foster.errors import SettingsError
from foster.settings.base import check_used
from foster.settings.experiment import load_settings
from foster.settings.fit import FitSettings, Frozen
from foster.settings.foster import FosterSettings
from foster.settings.learner import learner_settings
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS


def test_every_schedule_is_stretched() -> None:
    options = FosterSettings().scaled(0.5)
    assert (options.first.epochs, options.boost.epochs, options.compress.epochs) == (100, 85, 65)


class Polish(Frozen):
    fit: FitSettings = FitSettings(epochs=40, learning_rate=0.02)


class OutsideSettings(MethodSettings):
    """As a stranger may write them: schedules in a table, in a list, or in neither, and a free table."""

    polish: Polish = Polish()
    rounds: tuple[FitSettings, ...] = (FitSettings(epochs=20), FitSettings(epochs=10))
    last: FitSettings | None = None
    weights: dict[str, float] = Field(default={"first": 1.0})


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(METHOD_SETTINGS, "outside", OutsideSettings)
    return "method=outside"


def schedules(options: MethodSettings) -> list[FitSettings]:
    assert isinstance(options, OutsideSettings)
    assert options.last is not None
    return [options.polish.fit, *options.rounds, options.last]


def test_schedules_in_tables_and_lists_are_scaled_as_all_are(outside: str) -> None:
    settings = load_settings("digits", [outside, "outside.last.epochs=60"])
    scheduled = schedules(settings.scheduled(0.5, is_pretrained=True))
    assert [fit.epochs for fit in scheduled] == [20, 10, 5, 30]
    assert [fit.learning_rate for fit in scheduled] == pytest.approx([0.002, 0.01, 0.01, 0.01])
    learner = learner_settings([outside, "outside.last.epochs=60"])
    gentle = learner.scaled_options(100, is_pretrained=True, batch_size=16)
    assert [fit.max_gradient for fit in schedules(gentle)] == [1] * 4
    late = load_settings("digits", [outside, "outside.polish.fit={schedule = 'milestones', milestones = [90]}"])
    assert late.remarks(5) == ["outside.polish.fit.milestones: [90] lie beyond its 40 epochs; the rate never falls"]


def test_a_settings_file_holds_whatever_a_method_asks_for(outside: str, tmp_path: Path) -> None:
    """And without the plug-in it is told that this is missing."""
    settings = load_settings("digits", [outside, "outside.last.epochs=3", "outside.weights={second = 2.0}"])
    file = tmp_path / "settings.toml"
    file.write_text(settings.toml())
    assert load_settings(str(file)) == settings
    del METHOD_SETTINGS["outside"]
    with pytest.raises(SettingsError, match=r"method 'outside'.*--plugin"):
        load_settings(str(file))


class UnfinishedSettings(MethodSettings):
    strength: float


@pytest.mark.parametrize("more", [[], ["unfinished.strength=2"]])
def test_a_method_whose_settings_lack_a_default_is_told_so(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHOD_SETTINGS, "unfinished", UnfinishedSettings)
    with pytest.raises(SettingsError, match=r"^unfinished\.strength: "):
        load_settings("digits", ["method=unfinished", *more])


def test_keys_of_a_table_that_may_be_there_are_known(outside: str) -> None:
    with pytest.raises(SettingsError, match=r"'outside\.last\.epoch'.*'outside\.last\.epochs'"):
        load_settings("digits", [outside, "outside.last.epoch=3"])


def test_what_needs_another_setting_says_so_beside_its_type_and_keeps_its_bounds() -> None:
    assert METHOD_SETTINGS["wa"].needs() == {"distillation_weight": "weighting=fixed"}
    assert METHOD_SETTINGS["podnet"].needs() == {"margin": "hinge=true"}
    with pytest.raises(SettingsError, match=r"wa\.distillation_weight"):
        load_settings("digits", ["method=wa", "wa.distillation_weight=-1"])


@pytest.mark.parametrize(
    ("key", "value", "needs", "lacks"),
    [
        ("distillation_weight", 2, "distillation=true", "distillation=false"),
        ("gamma", "paper", "alignment=logits", "alignment=weights"),
        ("compress_cutmix", 0.5, "compression=true", "compression=false"),
    ],
)
def test_a_setting_that_needs_another_one_is_no_silent_nothing(
    key: str, value: float | str, needs: str, lacks: str
) -> None:
    asked = f"foster.{key}={value}"
    settings = load_settings("digits", [f"foster.{lacks}", asked])
    with pytest.raises(SettingsError, match=rf"^foster\.{key} .*{needs}"):
        check_used([asked], settings)
    # In a file it may stand and wait.
    assert settings.remarks(5) == [f"foster.{key}: this has no effect without {needs}"]
    check_used([asked], with_effect := load_settings("digits", [asked]))
    assert with_effect.remarks(5) == []
    check_used(["foster.beta_boost=0.9"], settings)
    check_used([f"foster.{key}=..."], load_settings("digits", [f"foster.{lacks}"]))  # as usual
