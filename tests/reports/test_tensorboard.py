"""Losses and accuracies in TensorBoard's files."""

import json
from pathlib import Path

import pytest
from tiny_runs import tiny_settings

from foster.cli.experiments import launch


def test_tensorboard_holds_losses_and_accuracies(tmp_path: Path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    launch(tiny_settings("finetune"), tmp_path / "run", quiet=True, is_shown=False, has_tensorboard=True)
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {
        "learn/L_CE",
        "learn/total",
        "learn/learning_rate",
        "accuracy/head",
        "new_accuracy/head",
        "old_accuracy/head",
    }
    lines = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    losses = [line["losses"]["L_CE"] for line in lines if line["event"] == "EpochEnded"]
    assert [scalar.value for scalar in found.Scalars("learn/L_CE")] == pytest.approx(losses)
