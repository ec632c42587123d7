"""Events are read as they are written: whole lines, each once, and nothing else."""

import datetime as dt
import json
from pathlib import Path

import pytest

from foster import events
from foster.events import Downloading, Event, Warned
from foster.experiment.event_log import FollowedRun, RunState, note, noting
from foster.learner.work_folder import WorkFolder


def epoch(task: int, number: int, loss: float) -> events.EpochEnded:
    return events.EpochEnded(task, "boost", number, 20, {"L_LA": loss, "total": loss}, 0.1, 1.0, 5.0)


def test_an_event_is_one_line_with_the_time_its_name_and_all_its_fields(tmp_path: Path):
    note(tmp_path, Warned("two\nlines"))
    line, end = (tmp_path / "events.jsonl").read_text().split("\n")
    record = json.loads(line)
    assert end == ""
    assert dt.datetime.fromisoformat(record.pop("time")).tzinfo is not None
    assert record == {"event": "Warned", "message": "two\nlines"}


def test_each_event_is_read_once_and_a_cut_line_waits_for_its_end(tmp_path: Path):
    run = FollowedRun(tmp_path)
    run.read_events()
    assert run.progress == RunState()
    note(tmp_path, events.RunStarted("wa", "digits-b0-inc2", 5, "", "cpu"))
    line = json.dumps(events.TaskStarted(1, 5, 2, 2, 100).record())
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(f'not JSON\n[1]\n{{"event": "Unknown"}}\n{line[:30]}')
        file.flush()
        run.read_events()
        assert (run.progress.method, run.progress.task) == ("wa", None)
        file.write(f"{line[30:]}\n")
    run.read_events()
    assert (run.progress.task, run.progress.num_tasks) == (1, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "x"},
        {"losses": 5},
        {"losses": {"a": "x"}},
        {"losses": {"a": None}},
        {"losses": {"a": 10**1000}},
        {"event": []},
    ],
)
def test_what_has_something_else_in_the_place_of_a_number_is_no_event(change: dict, tmp_path: Path):
    path, good = tmp_path / "events.jsonl", epoch(0, 0, 0.5)
    path.write_text(f"{json.dumps(good.record())}\nnull\n{json.dumps(good.record() | change)}\n")
    assert FollowedRun(tmp_path).read_events() == [good]


def test_the_state_of_a_run_is_the_sum_of_its_events():
    state = RunState()
    for event in (
        events.RunStarted("foster", "digits-b0-inc2", 5, "", "cpu"),
        events.TaskEnded(0, 90.0, 10, 40.0),
        events.PhaseStarted(1, 5, "boost", 20, 3),
        epoch(1, 0, 2.0),
        epoch(1, 1, 1.0),
        epoch(1, 1, 0.5),
    ):
        state.add(event)
    assert (state.task, state.num_tasks, state.phase, state.num_epochs_done, state.epochs) == (1, 5, "boost", 2, 20)
    assert state.losses == {"L_LA": [2.0, 0.5], "total": [2.0, 0.5]}, "an epoch that was trained again counts once"
    assert state.seconds_left == 5.0 + 3 * 40.0
    state.add(events.PhaseStarted(1, 5, "compress", 30, 3))
    assert (state.num_epochs_done, state.epochs, state.losses, state.seconds_left) == (0, 30, {}, None)
    state.add(events.RunEnded(80.0, 70.0, 100.0))
    assert state.end is not None


def test_the_events_of_a_learn_lie_beside_its_checkpoints_and_are_passed_on(tmp_path: Path):
    told: list[Event] = []
    folder = WorkFolder(tmp_path / "work").checkpoints.folder
    tell = noting(told.append, folder)
    warned, downloading = Warned("careful"), Downloading("weights", 1, 2)
    for event in (warned, downloading):
        tell(event)
    assert told == [warned, downloading]
    (line,) = (folder / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["message"] == "careful"


def test_events_that_cannot_be_noted_are_passed_on_all_the_same(tmp_path: Path):
    (tmp_path / "work").write_text("in the way")
    told: list[Event] = []
    noting(told.append, tmp_path / "work")(Warned("careful"))
    assert told == [Warned("careful")]
