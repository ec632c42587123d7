import io
import sys
from pathlib import Path

import pytest

from foster.events import RunEnded, TaskEnded, Warned
from foster.experiment.event_log import State
from foster.sweep.table import Display, RunStatus, counts


def test_a_log_that_nobody_reads_any_more_does_not_stop_a_sweep(monkeypatch: pytest.MonkeyPatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    Display().show([RunStatus("one", Path(), State.FAILED, message="no")])


def test_a_line_is_written_when_something_is_new_and_no_other(capsys: pytest.CaptureFixture[str]):
    lines, run = Display(), RunStatus("one", Path())
    run.state, run.told.num_tasks = State.RUNNING, 2
    for event in (Warned(""), TaskEnded(0, 90.0, 10, 1.0), TaskEnded(1, 80.0, 10, 1.0)):
        run.told.add(event)
        for _ in range(2):
            lines.show([run])
    assert capsys.readouterr().err.splitlines()[1:] == ["one: 90.00 % after task 1/2", "one: 80.00 % after task 2/2"]


def test_runs_are_counted_in_words():
    assert counts([RunStatus("one", Path())]) == "1 run: 1 waiting"
    states = [State.KILLED, State.STOPPED, State.STOPPED]
    assert counts([RunStatus("one", Path(), state) for state in states]) == "3 runs: 2 stopped, 1 killed"


def test_an_outcome_is_told_in_a_few_words() -> None:
    run = RunStatus("one", Path("nowhere"))
    assert run.outcome == "waiting"
    run.state, run.slot = State.RUNNING, "GPU 3"
    assert run.outcome == "started on GPU 3"
    run.is_continued = True
    assert run.outcome == "continued on GPU 3"
    run.state, run.message = State.FAILED, "no room"
    assert run.outcome == "failed: no room"
    run.state, run.message = State.FINISHED, ""
    assert run.outcome == "finished"
    run.told.add(RunEnded(61.257, 60.0, 75.0))
    assert run.outcome == "finished, average incremental accuracy 61.26 %"
