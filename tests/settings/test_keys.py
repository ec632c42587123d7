"""Dotted keys and key=value: how values are read, and what is said about unknown names."""

import pytest
from refusals import refused

from foster.settings.base import flat
from foster.settings.experiment import (
    load_settings,
)


def test_values_on_the_command_line_are_toml_and_anything_else_is_text() -> None:
    settings = load_settings(
        "digits",
        [
            "seed=7",
            "epochs_scale = 5e-1",
            "method='replay'",
            "data=/some where/else",
            "engine.deterministic=true",
            "synthetic={num_classes = 4}",
        ],
    )
    assert (settings.seed, settings.epochs_scale, settings.method) == (7, 0.5, "replay")
    assert settings.data == "/some where/else"
    assert settings.engine.deterministic is True
    assert settings.synthetic.num_classes == 4
    betas = load_settings("digits", ["foster.beta_boost=[0.1, 0.2, 0.3, 0.4]"]).options.beta_boost
    assert betas == (0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("method=fostr", "'foster'"),
        ("method=qqqq", "--plugin"),
        ("dataset=digit", "'digits'"),
        ("augmentation=plainn", "'plain'"),
        ("sed=3", "'seed'"),
        ("foster={boost={epoch=3}}", "'foster.boost.epochs'"),
        ("beta_boost=0.9", "'foster.beta_boost'"),
        ("replay.epochs=3", "'replay.later.epochs'"),
        ("qqqq=1", "foster list presets"),
        ("seed", "key=value"),
    ],
)
def test_an_unknown_name_gets_one_line_with_the_nearest_known_one(override: str, nearest: str) -> None:
    line = refused(override)
    assert nearest in line
    assert override.partition("=")[0].partition("{")[0] in line


def test_the_suggested_key_belongs_to_the_method_in_use() -> None:
    assert "did you mean 'replay.later.epochs'?" in refused("method=replay", "epochs=3")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("seed=-1", "seed", "-1"),
        ("epochs_scale=inf", "epochs_scale", "inf"),
        ("memory_total=9", "memory_total", "10 classes"),
        ("memory_per_class=3", "memory_per_class", "memory_total = 200"),
        ("selection=hearding", "selection", "'herding' or 'random'"),
        ("device=gpu", "device", "gpu"),
        ("augmentation.flip=maybe", "augmentation.flip", "maybe"),
        ("augmentation=[1]", "augmentation", "[1]"),
        ("foster.boost.epochs=0", "foster.boost.epochs", "0"),
        ("class_order=abc", "class_order", "abc"),
        ("base_classes=11", "base_classes", "10 classes"),
        ("foster.beta_boost=[0.9, 'x']", "foster.beta_boost.1", "'x'"),
        ("foster.beta_boost=[0.9, 0.9, 0.9]", "foster.beta_boost", "4 tasks"),
        ("foster.boost.schedule=milestones", "foster.boost", "milestones"),
        ("class_order=['1', '2', '1']", "class_order", "'1'"),
        ("class_order=['1', '2']", "class_order", "10 classes"),
    ],
)
def test_a_value_that_does_not_fit_gets_one_line_with_key_and_value(override: str, key: str, value: str) -> None:
    line = refused(override)
    assert key in line
    assert value in line
    assert "command line" in line or override == "base_classes=11"


def test_nested_settings_by_dotted_key() -> None:
    assert flat({"a": 1, "b": {"c": {"d": 2}, "e": []}, "f": {}}) == {"a": 1, "b.c.d": 2, "b.e": []}
