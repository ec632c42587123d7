"""What the settings of every method can do."""

from pathlib import Path

import pytest
from pydantic import Field

from foster.errors import SettingsError
from foster.settings.experiment import load_settings
from foster.settings.fit import FitSettings
from foster.settings.method import MethodSettings
from foster.settings.methods import METHOD_SETTINGS


def test_every_schedule_is_stretched_and_a_pretrained_backbone_is_trained_at_a_tenth_of_the_rate() -> None:
    options = load_settings("digits", ["method=bic"]).scheduled(0.5, is_pretrained=True)
    fits = options.schedules
    assert {key: fit.epochs for key, fit in fits.items()} == {"first": 85, "later": 85, "correction": 85}
    assert [fit.learning_rate for fit in fits.values()] == pytest.approx([0.01] * 3)


class OutsideSettings(MethodSettings):
    """As a stranger may write them: a schedule that may be missing, and a free table."""

    last: FitSettings | None = None
    weights: dict[str, float] = Field(default={"first": 1.0})


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(METHOD_SETTINGS, "outside", OutsideSettings)
    return "method=outside"


def test_a_settings_file_holds_whatever_a_method_asks_for(outside: str, tmp_path: Path) -> None:
    """And without the plug-in it is told that this is missing."""
    settings = load_settings("digits", [outside, "outside.last.epochs=3", "outside.weights={second = 2.0}"])
    file = tmp_path / "settings.toml"
    file.write_text(settings.toml())
    assert load_settings(str(file)) == settings
    del METHOD_SETTINGS["outside"]
    with pytest.raises(SettingsError, match=r"method 'outside'.*--plugin"):
        load_settings(str(file))


def test_keys_of_a_table_that_may_be_there_are_known(outside: str) -> None:
    with pytest.raises(SettingsError, match=r"'outside\.last\.epoch'.*'outside\.last\.epochs'"):
        load_settings("digits", [outside, "outside.last.epoch=3"])
