"""Events are read as they are written: whole lines, each once, and nothing else."""

import json
from pathlib import Path

import pytest

from foster.events import Downloading, Event, Warned
from foster.experiment.event_log import EventReader, noting, read_events
from foster.learner.work_folder import WorkFolder


def test_each_event_is_read_once_and_a_cut_line_waits_for_its_end(tmp_path: Path):
    reader, path = EventReader(tmp_path), tmp_path / "events.jsonl"
    assert reader.new_events() == []
    path.write_text('{"event": "A"}\nnot JSON\n[1]\n{"event": "B"')
    assert reader.new_events() == [{"event": "A"}]
    assert reader.new_events() == []
    with path.open("a") as file:
        file.write(', "task": 1}\n')
    assert reader.new_events() == [{"event": "B", "task": 1}]


@pytest.mark.parametrize(
    "line",
    [
        '{"task": "x"}',
        '{"accuracy": [1]}',
        '{"losses": 5}',
        '{"losses": {"L_CE": "x"}}',
        '{"losses": {"L_CE": null}}',
        '{"seconds_left": {}}',
        "null",
    ],
)
def test_what_has_something_else_in_the_place_of_a_number_is_no_event(line: str, tmp_path: Path):
    good = {"event": "EpochEnded", "task": 0, "losses": {"L_CE": 0.5}, "seconds_left": None}
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(good)}\n{line}\n")
    assert EventReader(tmp_path).new_events() == read_events(tmp_path / "events.jsonl") == [good]


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
