"""How a run stands, as its events tell it."""

import json
from pathlib import Path

from foster.reports.text import duration
from foster.sweep.status import RunStatus, State


def test_a_status_follows_the_events_and_copes_with_a_cut_line(tmp_path: Path):
    run = RunStatus("one", tmp_path)
    run.read_events()
    assert (run.task, run.phase, run.epoch, run.accuracy) == ("–", "–", "–", "–")
    lines = [
        {"event": "RunStarted", "num_tasks": 5},
        {"event": "TaskStarted", "task": 0, "num_tasks": 5},
        {"event": "PhaseStarted", "task": 0, "num_tasks": 5, "phase": "learn", "epochs": 20, "steps": 3},
        {"event": "EpochEnded", "task": 0, "phase": "learn", "epoch": 6, "epochs": 20, "seconds": 1.0},
    ]
    path = tmp_path / "events.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + '{"event": "TaskEnded", "ta')
    run.read_events()
    assert (run.task, run.phase, run.epoch, run.accuracy) == ("1/5", "learn", "7/20", "–")
    path.write_text(text + '{"event": "TaskEnded", "task": 0, "accuracy": 71.25}\nnot JSON\n{"event": "TaskStarted"')
    run.read_events()
    assert (run.task, run.accuracy) == ("1/5", "71.25")
    path.write_text(path.read_text() + ', "task": 1, "num_tasks": 5}\n')
    run.read_events()
    assert (run.task, run.accuracy) == ("2/5", "71.25")


def test_an_outcome_is_told_in_a_few_words() -> None:
    run = RunStatus("one", Path("nowhere"))
    assert (run.outcome, run.time) == ("waiting", "–")
    run.state, run.slot = State.RUNNING, "GPU 3"
    assert run.outcome == "started on GPU 3"
    run.is_continued = True
    assert run.outcome == "continued on GPU 3"
    run.state, run.message = State.FAILED, "no room"
    assert run.outcome == "failed: no room"
    run.state, run.message = State.FINISHED, ""
    assert run.outcome == "finished"
    run.facts = {"average_incremental_accuracy": 61.257, "seconds": 75}
    assert run.outcome == "finished, average incremental accuracy 61.26 %"
    assert run.time == duration(75)


def test_a_new_phase_begins_at_its_first_epoch(tmp_path: Path) -> None:
    lines = [
        {"event": "EpochEnded", "task": 1, "phase": "boost", "epoch": 19, "epochs": 20},
        {"event": "PhaseStarted", "task": 1, "num_tasks": 3, "phase": "compress", "epochs": 30},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = RunStatus("one", tmp_path)
    run.read_events()
    assert (run.task, run.phase, run.epoch) == ("2/3", "compress", "0/30")
