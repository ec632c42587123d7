import shlex
from pathlib import Path

import pytest

from foster.reports.reproduce import MACHINE, command
from foster.settings.experiment import load_settings

CASES = [
    ("digits", []),
    ("cifar100-b50-inc10", ["method=wa", "seed=3"]),
    ("digits", ["memory_total=none", "memory_per_class=4", "augmentation.flip=true", "foster.beta_boost=0.9"]),
    ("digits", ["dataset=synthetic", "synthetic.num_classes=6", "base_classes=0", "class_order=[]", "order_seed=4"]),
    ("cifar100-b0-inc5", ["method=icarl", "device=cpu", "keep_networks=true", "engine.threads=1"]),
]


@pytest.mark.parametrize(("preset", "overrides"), CASES)
def test_the_command_gives_the_same_settings_again(preset: str, overrides: list[str]):
    wanted = load_settings(preset, overrides)
    _, _, found, *changes = shlex.split(command(wanted))
    again = load_settings(found, changes)
    assert _learned(again.nested()) == _learned(wanted.nested())
    assert len(changes) <= len(overrides) + 5


def test_the_command_says_nothing_that_a_run_would_refuse(tmp_path: Path):
    (mine := tmp_path / "mine.toml").write_text('[foster]\nalignment = "none"\ngamma = "paper"\nbeta_boost = 0.9\n')
    told = command(load_settings("digits", [f"recipe={mine}"]))
    assert told == "foster run digits foster.beta_boost=0.9 'foster.alignment=\"none\"'"
    assert "recipe=" in command(load_settings("cifar100-b0-inc10", ["recipe=plus"]))


def test_what_a_preset_says_need_not_be_said_again():
    assert command(load_settings("cifar100-b0-inc10")) == "foster run cifar100-b0-inc10"


def _learned(nested: dict) -> dict:
    return {key: value for key, value in nested.items() if key not in MACHINE}
