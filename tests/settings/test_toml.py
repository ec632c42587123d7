"""TOML as text: whatever is written, the standard library reads back as the same data."""

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foster.settings.toml import dumps, value_text

TEXT = st.text("aZ09_-.,:;'\"\\/#=[]{} \t\n\r\0\x1f\x7f\x85\u2028é日😀", max_size=8)
"""Letters, and every kind of character that a TOML string or key must treat with care."""
PLAIN = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXT)
VALUES = st.recursive(
    st.one_of(PLAIN, st.lists(PLAIN, max_size=4)), lambda inner: st.dictionaries(TEXT, inner, max_size=4), max_leaves=10
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_any_plain_data_reads_back_as_it_was(data: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(data)) == data


def test_tables_follow_plain_keys_and_none_is_left_out() -> None:
    data = {"a": {"b": {"c": 1}, "d": 0.5, "gone": None}, "e": "text", "f": [1, [True, "x"]], "empty": {}}
    assert dumps(data) == 'e = "text"\nf = [1, [true, "x"]]\n\n[a]\nd = 0.5\n\n[a.b]\nc = 1\n\n[empty]\n'


def test_a_table_of_tables_alone_needs_no_header() -> None:
    assert dumps({"a": {"b": {"c": 1}}}) == "[a.b]\nc = 1\n"


@pytest.mark.parametrize("value", [1e-5, 5e-4, 1e16, 0.1 + 0.2, -0.0, 1e308, float("inf")])
def test_floats_keep_every_digit(value: float) -> None:
    assert repr(tomllib.loads(dumps({"x": value}))["x"]) == repr(value)


def test_a_table_in_a_list_has_no_nones_either() -> None:
    assert dumps({"x": [{"a": None, "b": 1}]}) == "x = [{b = 1}]\n"


def test_numbers_of_numpy_are_numbers() -> None:
    assert value_text([np.int64(3), np.float32(0.5), np.float64(0.1)]) == "[3, 0.5, 0.1]"


@pytest.mark.parametrize("value", [object(), b"bytes", [None]])
def test_what_toml_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot write"):
        dumps({"x": value})


@pytest.mark.parametrize("value", [{"a": 1, "b c": [True, "x"]}, {}, [{"a": {"b": 0.5}}]])
def test_a_table_as_one_value_is_read_back_as_it_was(value: object) -> None:
    assert tomllib.loads(f"value = {value_text(value)}") == {"value": value}
