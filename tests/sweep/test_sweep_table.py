import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from foster.sweep_table import LiveTable, PlainLines, RunStatus, State, counts, display_for, status_table


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


def test_the_table_shows_running_and_failed_runs_first_where_room_is_scarce():
    states = [State.FINISHED, State.WAITING, State.RUNNING, State.FAILED, State.WAITING]
    runs = [RunStatus(f"seed={index}", Path(), state) for index, state in enumerate(states)]
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(status_table(runs, num_rows=3))
    text = console.export_text()
    assert [line.split()[0] for line in text.splitlines() if "seed=" in line] == ["seed=1", "seed=2", "seed=3"]
    assert "5 runs: 2 waiting, 1 running, 1 finished, 1 failed" in text


def test_a_log_that_nobody_reads_any_more_does_not_stop_a_sweep():
    stream = io.StringIO()
    stream.close()
    PlainLines(stream).show([RunStatus("one", Path(), State.FAILED, message="no")])


class Terminal(io.StringIO):
    """A terminal of 20 lines, and what can be read on it."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Follows the codes that move the cursor and clear lines; colours are passed over."""
        lines, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if part == "\r":
                column = 0
            elif part == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif not part.startswith("\x1b"):
                lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
                column += len(part)
            elif part.endswith("A"):
                row -= int(part[2:-1])
            elif part == "\x1b[2K":
                lines[row] = ""
        return [line.rstrip() for line in lines]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


def test_the_live_table_is_redrawn_in_place_below_the_failures(terminal: Terminal):
    runs = [RunStatus(f"digits-foster-s{seed}", Path()) for seed in (1, 2, 3)]
    display = display_for(terminal)
    assert isinstance(display, LiveTable)
    with display:
        display.say("3 runs: 3 waiting, 1 at a time, in out")
        display.show(runs)
        assert [line.split()[:2] for line in terminal.screen() if "-s1" in line] == [["digits-foster-s1", "waiting"]]

        runs[0].state, runs[0].place, runs[0].began = State.RUNNING, "GPU 0", time.monotonic()
        runs[0].told = {"task": 2, "num_tasks": 5, "phase": "boost", "epoch": 6, "epochs": 20, "accuracy": 71.25}
        display.show(runs)
        (line,) = [line for line in terminal.screen() if "-s1" in line]
        assert line.split() == ["digits-foster-s1", "running", "(GPU", "0)", "3/5", "boost", "7/20", "71.25", "0", "s"]

        runs[0].state, runs[0].message = State.FAILED, "the loss is [not] a number"
        runs[1].state, runs[1].told = State.FINISHED, {"task": 4, "num_tasks": 5, "accuracy": 60.0, "seconds": 75}
        for _ in range(3):
            display.show(runs)
    screen = [line for line in terminal.screen() if line]
    assert screen[0] == "3 runs: 3 waiting, 1 at a time, in out"
    assert screen[1] == "digits-foster-s1: failed: the loss is [not] a number"
    assert screen[2].split() == ["run", "state", "task", "phase", "epoch", "accuracy", "time"]
    assert [line.split() for line in screen[4:7]] == [
        ["digits-foster-s1", "failed", "3/5", "boost", "7/20", "71.25", "–"],
        ["digits-foster-s2", "finished", "5/5", "–", "–", "60.00", "1", "min", "15", "s"],
        ["digits-foster-s3", "waiting", "–", "–", "–", "–", "–"],
    ]
    assert screen[7:] == ["3 runs: 1 waiting, 1 finished, 1 failed"]
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1


def test_a_long_failure_is_told_whole_and_many_runs_do_not_overflow_the_terminal(terminal: Terminal):
    runs = [RunStatus(f"digits-foster-s{seed}", Path()) for seed in range(40)]
    message = "why " * 40 + "END"
    with display_for(terminal) as display:
        display.show(runs)
        runs[7].state, runs[7].message = State.FAILED, message
        display.show(runs)
        shown = [line for line in terminal.screen() if line]
    assert f"digits-foster-s7: failed: {message}" in shown
    table = shown[shown.index(f"digits-foster-s7: failed: {message}") + 1 :]
    assert len(table) < 20
    assert ["digits-foster-s7", "failed"] in [line.split()[:2] for line in table]
    assert table[-1] == "40 runs: 39 waiting, 1 failed"


def test_what_is_no_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    assert isinstance(display_for(io.StringIO()), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(terminal), PlainLines)


def test_runs_are_counted_in_words():
    assert counts([RunStatus("one", Path())]) == "1 run: 1 waiting"
    states = [State.KILLED, State.STOPPED, State.STOPPED]
    assert counts([RunStatus("one", Path(), state) for state in states]) == "3 runs: 2 stopped, 1 killed"
