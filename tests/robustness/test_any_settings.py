"""Whatever stands in a settings file, an override, a class order or a scenario: settings, or one clear line."""

import json
import string
from pathlib import Path
from typing import Any

from faults import MANY, accepted
from hypothesis import example, given
from hypothesis import strategies as st

from foster.data.scenario import class_order_from_names
from foster.settings.base import keys_for, make
from foster.settings.experiment import Settings, load_settings
from foster.settings.learner import LearnerSettings, learner_settings

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 300)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["digits", "synthetic", "foster", "replay", "auto", "resnet8", "herding", "published", "plain"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*keys_for(Settings)]), inner, max_size=3)
    ),
    max_leaves=5,
)


def as_toml(value: Any) -> str:
    """Nearly always valid TOML: its scalars look like those of JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {as_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    return json.dumps(value)


@MANY
@given(override=st.tuples(st.sampled_from([*keys_for(Settings)]) | st.text(max_size=20), VALUES))
@example(override=("dataset", []))
@example(override=("method", {}))
@example(override=("augmentation", [1]))
@example(override=("seed", 10**400))
@example(override=("checkpoint_minutes", float("nan")))
@example(override=("foster", 3))
def test_an_override_gives_settings_or_one_line(override: tuple[str, Any]):
    key, value = override
    accepted(lambda: load_settings("digits", [f"{key}={as_toml(value)}"]))


@MANY
@given(override=st.tuples(st.sampled_from([*keys_for(LearnerSettings)]) | st.text(max_size=20), VALUES))
@example(override=("training", []))
@example(override=("image_size", [8, 8, 8]))
@example(override=("image_size", True))
@example(override=("engine.threads", 100_000))
@example(override=("foster.first", []))
def test_an_override_of_a_learner_gives_settings_or_one_line(override: tuple[str, Any]):
    key, value = override
    found = accepted(lambda: learner_settings([f"{key}={as_toml(value)}"]))
    if found is not None:
        again = make(LearnerSettings, json.loads(json.dumps(found.nested())), "a bundle")
        assert again.nested() == found.nested(), "what a bundle keeps is what was asked for"


@MANY
@given(content=st.binary(max_size=200) | st.text(string.printable, max_size=100).map(str.encode))
@example(content=b"\xff\xfe")
@example(content=b"a." * 2000 + b"a = 1")
@example(content=b'dataset = "digits"\nincrement = 2\n[foster]\nfirst = 3')
@example(content=b"[dataset]\nname = 1")
def test_a_settings_file_of_any_bytes_gives_settings_or_one_line(content: bytes, tmp_path: Path):
    path = tmp_path / "any.toml"
    path.write_bytes(content)
    accepted(lambda: load_settings(str(path)))


@MANY
@given(data=st.dictionaries(st.sampled_from([*keys_for(Settings)]), VALUES, max_size=5))
def test_a_settings_file_of_known_keys_with_any_values_gives_settings_or_one_line(data: dict[str, Any], tmp_path: Path):
    path = tmp_path / "known.toml"
    path.write_text("\n".join(f"{key} = {as_toml(value)}" for key, value in data.items()), encoding="utf-8")
    found = accepted(lambda: load_settings(str(path), ["dataset=synthetic"]))
    if found is not None:
        again = tmp_path / "again.toml"
        again.write_text(found.toml(), encoding="utf-8")
        assert load_settings(str(again)) == found, "what a run writes down is what it ran with"


NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@MANY
@given(
    order=st.permutations(NAMES)
    | st.lists(st.sampled_from([*NAMES, "cow", "", "../x"]) | st.text(max_size=5), min_size=1, max_size=12)
)
@example(order=[*NAMES[:9], "cow"])
@example(order=[*NAMES[:9], "zero"])
def test_a_class_order_of_any_names_is_a_permutation_or_gives_one_line(order: list[str]):
    found = accepted(lambda: load_settings("digits", [f"class_order={as_toml(order)}"]))
    ids = accepted(lambda: class_order_from_names(found.class_order, NAMES)) if found else None
    assert (ids is not None) == (sorted(order) == sorted(NAMES))
    if ids is not None:
        assert [NAMES[k] for k in ids] == order
