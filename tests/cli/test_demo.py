"""The demo: three methods side by side, and what they teach."""

import json
from pathlib import Path

import pytest
from commands import TINY, Command

from foster.settings.experiment import load_settings


def test_the_demo_compares_three_methods_and_draws_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = lambda source, more=(): load_settings(source, [*(TINY if source == "digits" else ()), *more])  # noqa: E731
    monkeypatch.setattr("foster.settings.experiment.load_settings", tiny)
    (tmp_path / "demo").mkdir()
    done = command("demo", "--out", "demo")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "demo-2").iterdir()} == {"finetune", "replay", "foster", "accuracy.png"}
    assert "runs:   demo-2" in done.out
    for name, said in (
        ("finetune", "Fine-tuning ends at {all} %: {new} % on the 2 classes that it learned last, {old} % on the 2"),
        ("foster", "FOSTER ends at {all} %: {new} % and {old} %, with one backbone and 8 exemplars."),
    ):
        found = json.loads((tmp_path / "demo-2" / name / "results.json").read_text())
        last = {"all": found["accuracy"][-1], "new": found["new_accuracy"][-1], "old": found["old_accuracy"][-1]}
        text = " ".join(done.out.split())  # a narrow terminal breaks lines
        assert said.format(**{key: round(value) for key, value in last.items()}) in text
