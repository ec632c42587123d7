"""What load_settings gives or refuses, for the tests of settings."""

import pytest

from foster.errors import FosterError
from foster.settings.experiment import load_settings


def refused(*overrides: str, source: str = "digits") -> str:
    """The one line with which the settings are refused."""
    with pytest.raises(FosterError) as caught:
        load_settings(source, overrides)
    assert caught.value.exit_code == 2
    line = str(caught.value)
    assert line
    assert "\n" not in line
    return line
