"""Losses and accuracies in TensorBoard's files."""

import json
from pathlib import Path

import pytest
from tiny_runs import tiny_settings

from foster.cli.experiments import train
from foster.events import EpochEnded, RunStarted, ignore
from foster.experiment.event_log import note
from foster.experiment.run import begin
from foster.reports.tensorboard import with_tensorboard


def test_tensorboard_holds_losses_and_accuracies(tmp_path: Path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(begin, tiny_settings("finetune"), tmp_path / "run", quiet=True, has_tensorboard=True)
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


def test_epochs_are_counted_on_after_a_resume(tmp_path: Path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def epoch(task: int, number: int) -> EpochEnded:
        return EpochEnded(task, "learn", number, 2, {"L_CE": 1.0}, 0.1, 1.0, 1.0)

    for event in (epoch(0, 0), epoch(0, 1), epoch(1, 0)):
        note(tmp_path, event)
    with with_tensorboard(ignore, tmp_path) as tell:
        for event in (RunStarted("wa", "digits", 2, "", "cpu"), epoch(1, 0), epoch(1, 1)):
            tell(event)
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [scalar.step for scalar in found.Scalars("learn/L_CE")] == [3, 4]
