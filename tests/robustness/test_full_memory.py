"""A device without room: one line with the numbers and what helps, wherever it happens, and the run can go on."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import Outcome, assert_same, only_line, outcome, resume, stopped_run, tiny_settings

import foster
from foster.cli import experiments
from foster.errors import DeviceError
from foster.events import ignore
from foster.experiment import run
from foster.experiment.folder import RunFolder
from foster.experiment.run import Experiment
from foster.learner.classifier import Classifier
from foster.system.signals import StopRequest
from foster.training import task as task_module
from foster.training.engine import Engine

Reference = Callable[..., Outcome]
GENERAL_FAILURE = getattr(torch, "AcceleratorError", RuntimeError)


def full(*arguments: object, **options: object) -> None:
    raise GENERAL_FAILURE("CUDA error: out of memory")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of replay that was stopped after its first task."""
    return stopped_run(tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture
def stopped(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


@pytest.mark.parametrize(
    ("owner", "name"),
    [(task_module, "fit"), (Experiment, "_restored")],
)
def test_a_run_that_runs_out_of_memory_anywhere_says_how_to_go_on_and_can(
    owner: object, name: str, stopped: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Reference
):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        with pytest.raises(DeviceError) as error:
            resume(stopped)
    assert f"foster resume {stopped}" in only_line(error)
    assert "batch_size (now 16)" in only_line(error)
    resume(stopped)
    assert_same(outcome(stopped), uninterrupted("replay"))


@pytest.mark.parametrize("name", ["load_scenario", "build_method"])
def test_a_run_that_runs_out_of_memory_before_it_begins_gives_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, name, lambda *arguments: torch.empty(2**60))
    with pytest.raises(DeviceError, match=r"out of memory on cpu: .*\d+ bytes"):
        Experiment(tiny_settings(), RunFolder(tmp_path / "run"), ignore, StopRequest())
    assert not (tmp_path / "run").exists()


def test_how_a_run_computes_can_be_changed_where_it_is_resumed(stopped: Path, uninterrupted: Reference):
    experiments.resume(stopped, ["engine.resident=off", "checkpoint_minutes=2", "device=cpu"], quiet=True)
    found = outcome(stopped)
    assert found.results["settings"]["engine"]["resident"] == "off"
    assert RunFolder(stopped).settings().checkpoint_minutes == 2
    expected = uninterrupted("replay")
    assert found.results["accuracy_matrix"] == expected.results["accuracy_matrix"]


def test_a_prediction_that_runs_out_of_memory_gives_one_line(small_bundle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Classifier, "scores_of", full)
    with pytest.raises(DeviceError, match="cpu"):
        foster.load(small_bundle, device="cpu").predict(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))


def test_a_learn_that_runs_out_of_memory_gives_one_line_and_the_learner_is_as_it_was(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    learner = foster.load(small_bundle, device="cpu")
    images, labels = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8), ["three", "four"] * 20
    for owner, name in ((Engine, "infer"), (task_module, "fit"), (Classifier, "all_scores")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            with pytest.raises(DeviceError, match="cpu") as error:
                learner.learn(images, labels, epochs_scale=0.006)
        only_line(error)
        assert learner.class_names == ("zero", "one")
    learner.learn(images, labels, epochs_scale=0.006)
    assert learner.class_names == ("zero", "one", "three", "four")
