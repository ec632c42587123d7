"""The methods as text."""

import tomllib

import pytest

from foster.errors import SettingsError
from foster.reports.methods import method_list, method_settings_text
from foster.settings.methods import METHOD_SETTINGS


def test_every_method_has_a_paragraph_of_lines_that_fit():
    text = method_list()
    assert [paragraph.split()[0] for paragraph in text.split("\n\n")[:-1]] == list(METHOD_SETTINGS)
    assert max(map(len, text.splitlines())) <= 110
    assert "foster.beta_boost" in text
    assert "schedules: foster.first, foster.boost, foster.compress" in text


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_the_settings_of_a_method_read_back_as_its_defaults(name: str):
    data = tomllib.loads(method_settings_text(name))
    assert METHOD_SETTINGS[name].model_validate(data[name]) == METHOD_SETTINGS[name]()


def test_the_settings_of_a_method_are_explained_beside_their_values():
    assert "# beta of balanced distillation; 0 gives plain distillation, auto is 0.97.\nbeta_compress" in (
        method_settings_text("foster")
    )


def test_an_unknown_method_is_answered_with_the_closest():
    with pytest.raises(SettingsError, match="did you mean 'icarl'"):
        method_settings_text("icarll")
