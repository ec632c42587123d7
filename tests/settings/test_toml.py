"""TOML as text: what is written reads back as the same data."""

import tomllib

import numpy as np
import pytest

from foster.settings.toml import dumps, value_text

DATA = {"e": 'text\n"é', "f": [1, [True, "x"]], "a": {"d": 0.1, "b": {"c c": 1e-5}}, "empty": {}}


def test_plain_data_reads_back_as_it_was_and_none_is_left_out() -> None:
    assert tomllib.loads(dumps({**DATA, "gone": None, "g": [{"a": None, "b": 1}]})) == {**DATA, "g": [{"b": 1}]}


@pytest.mark.parametrize("value", [*DATA.values(), 1e16, 0.1 + 0.2, -0.0, [{"a": {"b c": 0.5}}]])
def test_one_value_is_one_line_that_reads_back_as_it_was(value: object) -> None:
    text = value_text(value)
    assert "\n" not in text
    assert repr(tomllib.loads(f"value = {text}")["value"]) == repr(value)


@pytest.mark.parametrize("value", [np.int64(3), np.float32(0.5), np.bool_(True), np.array([[1, 2], [3, 4]])])
def test_what_numpy_holds_is_written_as_what_python_holds(value: np.generic) -> None:
    assert value_text([value]) == value_text([value.tolist()])


@pytest.mark.parametrize("value", [object(), b"bytes", [None]])
def test_what_toml_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        value_text(value)
