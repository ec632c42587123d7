import io
import re
import time
from pathlib import Path

import pytest

from foster.events import EpochEnded, PhaseStarted, RunEnded, TaskEnded, Warned
from foster.experiment.event_log import RunState, State
from foster.sweep.table import LiveTable, PlainLines, RunStatus, counts, display_for, short_names
from foster.system.counts import duration


def test_names_leave_out_what_all_runs_share():
    names = [
        f"cifar100-b0-inc10-{method}-s{seed},epochs_scale=0.5,memory_total={memory}"
        for method, seed, memory in (("foster", 1, 500), ("foster", 2, 2000), ("wa", 1, 500))
    ]
    assert short_names(names) == ["foster-s1,memory_total=500", "foster-s2,memory_total=2000", "wa-s1,memory_total=500"]
    assert short_names(names[:2]) == ["s1,memory_total=500", "s2,memory_total=2000"]
    assert short_names(names[:1]) == names[:1]
    assert short_names([names[0], f"{names[0]},batch_size=8"]) == [names[0], "batch_size=8"]


def test_a_log_that_nobody_reads_any_more_does_not_stop_a_sweep():
    stream = io.StringIO()
    stream.close()
    PlainLines(stream).show([RunStatus("one", Path(), State.FAILED, message="no")])


def test_a_plain_line_is_written_when_something_is_new_and_no_other():
    stream, run = io.StringIO(), RunStatus("one", Path())
    lines = PlainLines(stream)
    run.state, run.told.num_tasks = State.RUNNING, 2
    for event in (Warned(""), TaskEnded(0, 90.0, 10, 1.0), TaskEnded(1, 80.0, 10, 1.0)):
        run.told.add(event)
        for _ in range(2):
            lines.show([run])
    assert stream.getvalue().splitlines()[1:] == ["one: 90.00 % after task 1/2", "one: 80.00 % after task 2/2"]


def told(task: int, num_tasks: int, epoch: int, epochs: int, accuracy: float) -> RunState:
    state = RunState()
    state.add(PhaseStarted(task, num_tasks, "boost", epochs, 3))
    state.add(EpochEnded(task, "boost", epoch - 1, epochs, {}, 0.1, 1.0, 1.0))
    state.add(TaskEnded(task - 1, accuracy, 10, 1.0))
    return state


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
        assert [line.split()[:2] for line in terminal.screen() if line.startswith("s1 ")] == [["s1", "waiting"]]

        runs[0].state, runs[0].slot, runs[0].began = State.RUNNING, "GPU 0", time.monotonic()
        runs[0].told = told(2, 5, 7, 20, 71.25)
        display.show(runs)
        (line,) = [line for line in terminal.screen() if line.startswith("s1 ")]
        assert line.split() == ["s1", "running", "(GPU", "0)", "3/5", "boost", "7/20", "71.25", "0", "s"]

        runs[0].state, runs[0].message = State.FAILED, "the loss is [not] a number"
        runs[1].state, runs[1].told = State.FINISHED, told(4, 5, 20, 20, 60.0)
        runs[1].told.add(RunEnded(70.0, 60.0, 75.0))
        for _ in range(3):
            display.show(runs)
    screen = [line for line in terminal.screen() if line]
    assert screen[0] == "3 runs: 3 waiting, 1 at a time, in out"
    assert screen[1] == "digits-foster-s1: failed: the loss is [not] a number"
    assert screen[2] == "3 runs: 1 waiting, 1 finished, 1 failed"
    assert screen[3].split() == ["run", "state", "task", "phase", "epoch", "accuracy", "time"]
    assert [line.split() for line in screen[5:]] == [
        ["s1", "failed", "3/5", "boost", "7/20", "71.25", "–"],
        ["s3", "waiting", "–", "–", "–", "–", "–"],
        ["s2", "finished", "5/5", "–", "–", "60.00", "1", "min", "15", "s"],
    ]
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
    assert table[0] == "40 runs: 39 waiting, 1 failed"
    assert table[3].split()[:2] == ["s7", "failed"]
    assert len(table) == 20, "the screen is used and not more"


def test_names_that_wrap_hide_neither_the_counts_nor_what_is_running(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    runs = [
        RunStatus(f"cifar100-b50-inc10-foster-s{seed},foster.alignment={alignment},foster.beta_compress={beta}", Path())
        for seed in (1993, 1, 2)
        for alignment in ("logits", "weights")
        for beta in (0.95, 0.97)
    ]
    for run in runs[:-2]:
        run.state, run.told = State.FINISHED, told(9, 10, 130, 130, 61.2)
    for run in runs[-2:]:
        run.state, run.slot, run.began = State.RUNNING, "GPU 0", time.monotonic()
        run.told = told(9, 10, 100, 130, 61.2)
    with display_for(terminal) as display:
        display.show(runs)
        screen = [line for line in terminal.screen() if line]
    assert len(screen) <= 20
    assert screen[0] == "12 runs: 2 running, 10 finished"
    states = [line.split()[1] for line in screen[3:] if len(line.split()) > 5]
    assert states[:2] == ["running", "running"]
    assert set(states[2:]) == {"finished"}
    assert "".join(line.split()[0] for line in screen[3:]).startswith(
        "s2,foster.alignment=weights,foster.beta_compress=0.95s2,"
    )


def test_what_is_no_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    assert isinstance(display_for(io.StringIO()), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(terminal), PlainLines)


def test_runs_are_counted_in_words():
    assert counts([RunStatus("one", Path())]) == "1 run: 1 waiting"
    states = [State.KILLED, State.STOPPED, State.STOPPED]
    assert counts([RunStatus("one", Path(), state) for state in states]) == "3 runs: 2 stopped, 1 killed"


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
    run.told.add(RunEnded(61.257, 60.0, 75.0))
    assert run.outcome == "finished, average incremental accuracy 61.26 %"
    assert run.time == duration(75)
