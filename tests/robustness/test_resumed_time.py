"""The time that is reported is that of all attempts, not of the last one."""

from pathlib import Path

import pytest
from tiny_runs import Interruption, interrupted, resume, tiny_settings

import foster
from foster import events
from foster.data.sources import load as load_dataset
from foster.events import Event
from foster.experiment.folder import RunFolder
from foster.learner.work_folder import WorkFolder
from foster.system.signals import Stopped
from foster.training.checkpoint import CheckpointStore

BEFORE, SOON = 1000.0, 200.0
"""How long the first attempt is said to have taken, and less than which the second one takes."""


def is_boosting(event: Event) -> bool:
    return isinstance(event, events.PhaseStarted) and event.phase == "boost"


def make_long_ago(checkpoints: CheckpointStore) -> None:
    checkpoint = checkpoints.load(print)
    assert 0 < checkpoint.state["seconds"] < SOON
    checkpoints.save(checkpoint.state | {"seconds": BEFORE}, checkpoint.parts, {})


def test_a_resumed_run_counts_the_time_of_its_task_before_the_break(tmp_path: Path) -> None:
    interrupted(tiny_settings("foster", "synthetic.num_classes=4"), tmp_path / "run", Interruption(is_boosting, 0))
    make_long_ago(RunFolder(tmp_path / "run").checkpoints)
    results = resume(tmp_path / "run")
    first, second = results["task_seconds"]
    assert BEFORE < second < BEFORE + SOON
    assert first < SOON
    assert results["train_seconds"] == pytest.approx(first + second)


def test_a_resumed_learn_counts_the_time_before_the_break(bundle: Path, tmp_path: Path) -> None:
    learner, interruption = foster.load(bundle, device="cpu"), Interruption(is_boosting, 1)
    images, work = load_dataset("digits").train.of_classes(2, 3).images[:20], tmp_path / "work"
    with pytest.raises(Stopped):
        learner.learn(images, ["two"] * 20, work_folder=work, listener=interruption.listen, stop=interruption)
    make_long_ago(WorkFolder(work).checkpoints)
    report = learner.learn(images, ["two"] * 20, work_folder=work)
    assert BEFORE < report.seconds < BEFORE + SOON
