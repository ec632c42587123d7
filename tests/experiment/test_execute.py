"""A run from its settings to its results: refused before anything is written, or ended with its reason."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from uneven_runs import run, tiny

from foster.errors import DataError, DeviceError, FolderError, FosterError, SettingsError, TrainingError
from foster.experiment.event_log import read_events
from foster.experiment.execute import begin, resumed_settings
from foster.experiment.folder import RunFolder
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import Stopped, StopRequest


def refused(settings: Settings, parent: Path) -> FosterError:
    """The error with which a run is refused; nothing may be left behind."""
    with pytest.raises(FosterError) as caught:
        run(settings, parent / "runs" / "refused")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert list(parent.iterdir()) == []
    return caught.value


def test_missing_data_files_get_one_line_and_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*arguments: object, **keywords: object) -> None:
        raise urllib.error.URLError("there is no network")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", offline)
    settings = load_settings("cifar100-b0-inc10", data=str(tmp_path / "nowhere"))
    error = refused(settings, tmp_path)
    assert isinstance(error, DataError)
    assert "nowhere" in str(error)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_a_gpu_that_is_not_there_gets_one_line_and_leaves_no_folder(tmp_path: Path) -> None:
    error = refused(tiny("device=cuda"), tmp_path)
    assert isinstance(error, DeviceError)
    assert "device 'cuda' was asked for, but 0 GPUs" in str(error)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("backbone=resnet33",), "unknown backbone 'resnet33'; did you mean 'resnet34'?"),
        (("class_order=['class 00', 'class 01', 'class 02', 'class 03', 'clas 04']",), "did you mean 'class 04'?"),
        (("foster.unlabeled=digit",), "did you mean 'digits'?"),
    ],
)
def test_what_only_the_parts_can_judge_is_refused_before_anything_is_written(
    overrides: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    error = refused(tiny(*overrides), tmp_path)
    assert isinstance(error, SettingsError)
    assert message in str(error)


def test_a_loss_that_explodes_stops_the_run_with_its_place_and_leaves_the_reason(tmp_path: Path) -> None:
    settings = tiny("foster.boost.learning_rate=1e6", "foster.boost.weight_decay=1")
    with pytest.raises(TrainingError, match=r"in task 2, phase boost, epoch [12]; try a learning rate below"):
        run(settings, tmp_path / "run")
    events = read_events(tmp_path / "run" / "events.jsonl")
    assert events[-1]["event"] == "RunFailed"
    assert "task 2, phase boost" in events[-1]["message"]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["finished"], len(results["accuracy"])) == (False, 1), "the first task is not lost"


def test_who_is_asked_to_stop_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.set(signal.SIGTERM)
    with pytest.raises(Stopped):
        begin(tiny(), RunFolder(tmp_path / "run"), lambda event: None, stop)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_asked_for_again_keeps_its_data_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.opened(load_settings("digits", data="somewhere")):
        pass
    assert resumed_settings(load_settings("digits"), folder).data == "somewhere"
    assert resumed_settings(load_settings("digits", data="elsewhere"), folder).data == "elsewhere"
    with pytest.raises(FolderError, match=r"other settings \(seed = 1993, not 5\)"):
        resumed_settings(load_settings("digits", ["seed=5"]), folder)
