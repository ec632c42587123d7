import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tiny_runs import tiny_settings

from foster import events
from foster.cli.launch import launch
from foster.errors import SettingsError
from foster.reports.trackers import tracked

TOLD: list[str] = []


class Recorder:
    """What a tracker of one's own looks like."""

    def __init__(self, folder, settings) -> None:
        TOLD.append(f"{folder.name} {settings.method}")

    def __call__(self, event: events.Event) -> None:
        TOLD.append(type(event).__name__)

    def close(self) -> None:
        TOLD.append("closed")


class Gone:
    def __init__(self, folder, settings) -> None:
        pass

    def __call__(self, event: events.Event) -> None:
        raise ConnectionError("the server is gone")


def test_a_tracker_is_told_of_every_event_and_closed(tmp_path: Path):
    TOLD.clear()
    launch(tiny_settings("finetune"), tmp_path / "run", quiet=True, is_shown=False, trackers=[f"{__name__}:Recorder"])
    assert TOLD[0] == "run finetune"
    assert TOLD[-2:] == ["RunEnded", "closed"]
    assert {"RunStarted", "EpochEnded", "Evaluated", "TaskEnded"} <= set(TOLD)


def test_a_tracker_that_fails_does_not_cost_the_run(tmp_path: Path, capsys):
    heard: list[events.Event] = []
    with ExitStack() as ends:
        tell = tracked([f"{__name__}:Gone"], tmp_path, tiny_settings(), heard.append, ends)
        for _ in range(3):
            tell(events.Warned("hello"))
    assert len(heard) == 3
    assert capsys.readouterr().err.count("is told no more: the server is gone") == 1


NO_TRACKERS = ["nonsense", "no.module:name", "foster.events:nothing", "foster.version:__version__", "os:getcwd", ":x"]


@pytest.mark.parametrize("name", NO_TRACKERS)
def test_what_is_no_tracker_is_one_line(name: str, tmp_path: Path):
    with pytest.raises(SettingsError, match="--track"), ExitStack() as ends:
        tracked([name], tmp_path, tiny_settings(), print, ends)


def test_a_tracker_in_a_file_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_tracker.py").write_text("def silent(folder, settings):\n    return lambda event: None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    with ExitStack() as ends:
        assert tracked(["my_tracker:silent"], tmp_path, tiny_settings(), print, ends) is not print
    del sys.modules["my_tracker"]


def test_tensorboard_holds_losses_and_accuracies(tmp_path: Path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = ["foster.reports.trackers:TensorBoard"]
    launch(tiny_settings("finetune"), tmp_path / "run", quiet=True, is_shown=False, trackers=trackers)
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
