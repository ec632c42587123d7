"""What `foster.register_method` takes and refuses."""

from collections.abc import Iterator
from typing import Any

import pytest

from foster.errors import SettingsError
from foster.methods import method_class, register_method
from foster.methods.base import Method
from foster.methods.replay import Replay
from foster.settings import plugins
from foster.settings.experiment import load_settings
from foster.settings.methods import METHOD_SETTINGS, MethodSettings, ReplaySettings


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


@pytest.mark.parametrize("settings", [None, MethodSettings, ReplaySettings])
def test_a_method_without_settings_of_its_own_is_refused(settings: type[MethodSettings] | None) -> None:
    class Plain(Replay):
        """Says nothing of its settings."""

    with pytest.raises(SettingsError, match=r"method 'plain' needs a settings class of its own: 'class Mine\(Method"):
        register_method("plain", settings)(Plain)
    assert "plain" not in METHOD_SETTINGS


def test_a_name_that_is_taken_is_refused_and_leaves_all_as_it_was() -> None:
    class Other(Method[Any]):
        """Another method of the name."""

    with pytest.raises(SettingsError, match="there is a method 'replay' already, from foster itself"):
        register_method("replay", OwnSettings)(Other)
    assert method_class("replay") is Replay
    assert OwnSettings.built_by is not Other
    register_method("seed", OwnSettings)(Other)
    with pytest.raises(SettingsError, match="a method cannot be called 'seed'"):
        load_settings("digits")
