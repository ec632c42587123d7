import io
import os
import pty
import sys
from dataclasses import dataclass

import pytest

from foster import events
from foster.events import Event
from foster.reports.progress import LineProgress, TerminalProgress, progress_for


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class SomethingNew(Event):
    task: int


def epoch_ended(epoch: int, epochs: int = 100, **losses: float) -> events.EpochEnded:
    losses = losses or {"L_CE": 0.5, "total": 0.5}
    return events.EpochEnded(1, "boost", epoch - 1, epochs, losses, 0.1, 1.0, 200.0)


def story() -> list[Event]:
    return [
        events.Downloading("it.tar.gz", 0, None),
        events.Downloading("it.tar.gz", 3 * 2**20, 6 * 2**20),
        events.Decoding("the photos", 10, 20),
        events.RunStarted("foster", "digits-b0-inc2", 5, "runs/one", "cpu"),
        events.TaskStarted(1, 5, 2, 2, 1300),
        events.PhaseStarted(1, 5, "boost", 100, 7),
        epoch_ended(10, L_LA=0.9, L_KD=0.334, total=1.234),
        events.PhaseEnded(1, "boost", 75.0),
        SomethingNew(3),
        events.CheckpointWritten(1, "boost", 10, 0.1),
        events.Evaluated(1, "boosted", 95.25, 100.0, 94.0, 96.5, (94.0, 96.5)),
        events.TaskEnded(1, 95.25, 20, 80.0),
        events.RunEnded(96.0, 95.25, 130.0),
        events.RunFailed("the loss is not a number"),
    ]


def test_plain_lines_tell_the_story_of_a_run():
    stream, clock = io.StringIO(), Clock()
    listener = LineProgress(stream, clock)
    for event in story():
        clock.now += 20
        listener(event)
    assert stream.getvalue().splitlines() == [
        "downloading it.tar.gz",
        "downloading it.tar.gz: 3.0 of 6.0 MiB",
        "reading the photos: 10 of 20",
        "foster on digits-b0-inc2: 5 tasks on cpu, in runs/one",
        "task 2/5: 2 new classes, 2 known, 1,300 images",
        "task 2/5 boost: 100 epochs of 7 steps",
        "task 2/5 boost: epoch 10/100, loss 1.234 = L_LA 0.900 + L_KD 0.334, 3 min 20 s left",
        "task 2/5 boost: done in 1 min 15 s",
        "task 2/5 boosted: 95.25 % (old 94.00, new 96.50, top-5 100.00)",
        "average incremental accuracy 96.00 %, final 95.25 %, in 2 min 10 s",
    ]


@pytest.mark.parametrize(("seconds_per_epoch", "num_lines"), [(1.0, 2), (20.0, 39), (0.01, 0)])
def test_plain_lines_come_now_and_then(seconds_per_epoch: float, num_lines: int):
    stream, clock = io.StringIO(), Clock()
    listener = LineProgress(stream, clock)
    listener(events.PhaseStarted(1, 5, "boost", 40, 7))
    for epoch in range(1, 41):
        clock.now += seconds_per_epoch
        listener(epoch_ended(epoch, 40))
    assert len(stream.getvalue().splitlines()) == 1 + num_lines


def test_reading_photos_shows_the_time_left_by_its_pace_so_far():
    stream, clock = io.StringIO(), Clock()
    listener = LineProgress(stream, clock)
    steps = (("january", 100, 1000), ("january", 200, 1000), ("january", 300, 1000), ("february", 100, 1000))
    for what, num_done, num_total in (*steps, ("february", 200, 900), ("february", 200, 900)):
        clock.now += 20
        listener(events.Decoding(what, num_done, num_total))
    assert stream.getvalue().splitlines() == [
        "reading january: 100 of 1,000",
        "reading january: 200 of 1,000, 2 min 40 s left",
        "reading january: 300 of 1,000, 2 min 20 s left",
        "reading february: 100 of 1,000",
        *2 * ["reading february: 200 of 900"],  # other photos of the same folder
    ]


def test_a_stream_that_is_gone_does_not_stop_a_run():
    stream = io.StringIO()
    listener = LineProgress(stream)
    stream.close()
    for event in story():
        listener(event)


def test_a_pipe_gets_lines_a_terminal_gets_the_live_line_and_quiet_gets_warnings_alone(capsys):
    with progress_for(io.StringIO()) as listener:
        assert isinstance(listener, LineProgress)
    with progress_for(quiet=True) as listener:
        for event in story():
            listener(event)
        listener(events.Warned("the disk is nearly full"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "warning: the disk is nearly full\n")


class Terminal:
    """A pseudo-terminal; `shown()` closes its writing end and returns all that was written."""

    def __init__(self) -> None:
        self._reader, writer = pty.openpty()
        self.stream = os.fdopen(writer, "w")

    def shown(self) -> str:
        self.stream.close()
        chunks = []
        while True:
            try:
                chunk = os.read(self._reader, 65536)
            except OSError:  # the end of a pseudo-terminal on Linux
                chunk = b""
            if not chunk:
                os.close(self._reader)
                return b"".join(chunks).decode()
            chunks.append(chunk)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def test_a_terminal_shows_the_live_line_and_keeps_the_evaluations(terminal: Terminal):
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, TerminalProgress)
        for event in story():
            listener(event)
            listener._progress.refresh()
    shown = terminal.shown()
    for fact in ("3.0 of 6.0 MiB", "10/20", "task 2/5 boost", "10/100", "L_KD 0.334", "3 min 20 s left", "95.25 %"):
        assert fact in shown


def test_output_to_a_file_stays_in_the_file(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with progress_for(terminal.stream):
        print("a table")
        assert sys.stdout.getvalue() == "a table\n"


def test_a_terminal_without_cursor_control_gets_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, LineProgress)
    terminal.shown()


def test_a_learn_is_told_without_the_words_of_the_paper():
    stream = io.StringIO()
    listener = LineProgress(stream, Clock())
    for event in (
        events.LearnPlanned(("2 new classes",)),
        events.PhaseStarted(1, 1, "boost", 100, 7),
        events.PhaseEnded(1, "boost", 3.0),
        events.RunResumed(1, "compress again", 0),
        events.Evaluated(1, "boosted", 91.11, 100.0, 93.33, 88.89, (93.33, 88.89)),
    ):
        listener(event)
    told = stream.getvalue()
    assert all(fact in told for fact in ("2 new classes", "known 93.33, new 88.89"))
    assert not any(word in told for word in ("task", "boost", "top-5"))
