import io
import math
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
        clock.now += 3
        listener(event)
    assert stream.getvalue().splitlines() == [
        "foster on digits-b0-inc2: 5 tasks on cpu, in runs/one",
        "task 2/5: 2 new classes, 2 known, 1,300 images",
        "task 2/5 boost: 100 epochs of 7 steps",
        "task 2/5 boost: epoch 10/100, loss 1.234 = L_LA 0.900 + L_KD 0.334, 3 min 20 s left",
        "task 2/5 boost: done in 1 min 15 s",
        "task 2/5 boosted: 95.25 % (old 94.00, new 96.50, top-5 100.00)",
        "average incremental accuracy 96.00 %, final 95.25 %, in 2 min 10 s",
    ]


def epochs_shown(seconds_per_epoch: float, epochs: int) -> list[int]:
    stream, clock = io.StringIO(), Clock()
    listener = LineProgress(stream, clock)
    listener(events.PhaseStarted(1, 5, "boost", epochs, 7))
    for epoch in range(1, epochs + 1):
        clock.now += seconds_per_epoch
        listener(epoch_ended(epoch, epochs))
    return [int(line.split("epoch ")[1].split("/")[0]) for line in stream.getvalue().splitlines()[1:]]


def test_plain_lines_come_every_tenth_of_the_epochs():
    assert epochs_shown(1.0, 100) == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_plain_lines_come_at_least_every_half_minute():
    assert epochs_shown(15.0, 40) == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38]


def test_a_short_phase_does_not_flood_the_log():
    assert epochs_shown(0.01, 100) == []


def received(num_mebibytes: float, num_total: float | None = 161.2) -> events.Downloading:
    return events.Downloading("it.tar.gz", int(num_mebibytes * 2**20), num_total and int(num_total * 2**20))


def download_shown(seconds_per_mebibyte: float, num_total: float | None) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    listener = LineProgress(stream, clock)
    for num_mebibytes in [*range(161), 161.2]:
        listener(received(num_mebibytes, num_total if num_mebibytes else None))
        clock.now += seconds_per_mebibyte
    return stream.getvalue().splitlines()


def test_a_download_gets_a_few_plain_lines():
    begin, end = "downloading it.tar.gz", "downloading it.tar.gz: 161.2 of 161.2 MiB"
    assert download_shown(0.001, 161.2) == [begin, end]
    shown = download_shown(0.25, 161.2)
    assert (shown[0], shown[1], shown[-1]) == (begin, "downloading it.tar.gz: 17.0 of 161.2 MiB", end)
    assert len(shown) == 11
    assert download_shown(1.0, None) == [begin, *(f"{begin}: {k}.0 MiB" for k in (30, 60, 90, 120, 150))]


def test_a_resumed_run_says_where():
    stream = io.StringIO()
    listener = LineProgress(stream)
    listener(events.RunStarted("foster", "digits-b0-inc2", 5, "runs/one", "cpu"))
    listener(events.RunResumed(2, "compress", 39))
    listener(events.RunResumed(3, "", 0))
    assert stream.getvalue().splitlines()[1:] == ["resumed at task 3/5 compress, epoch 40", "resumed at task 4/5"]


def test_a_stream_that_is_gone_does_not_stop_a_run():
    stream = io.StringIO()
    listener = LineProgress(stream)
    stream.close()
    for event in story():
        listener(event)


def test_a_pipe_gets_lines_a_terminal_gets_the_live_line_and_quiet_gets_nothing(capsys):
    with progress_for(io.StringIO()) as listener:
        assert isinstance(listener, LineProgress)
    with progress_for(quiet=True) as listener:
        for event in story():
            listener(event)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_standard_error_is_the_default_and_standard_output_stays_clean(capsys):
    with progress_for() as listener:
        for event in story():
            listener(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "task 2/5 boosted: 95.25 %" in captured.err


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
    assert "task 2/5 boost" in shown
    assert "10/100" in shown
    assert "loss 1.234 = L_LA 0.900 + L_KD 0.334" in shown
    assert "3 min 20 s left" in shown
    assert "boosted: 95.25 % (old 94.00, new 96.50, top-5 100.00)" in shown


def test_photos_that_are_in_the_cache_are_checked_and_not_decoded(terminal: Terminal):
    stream, clock = io.StringIO(), Clock()
    lines = LineProgress(stream, clock)
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, TerminalProgress)
        for was_there in (False, True):
            clock.now += 100
            event = events.Decoding("the photos", 10, 20, was_there)
            lines(event)
            listener(event)
            listener._progress.refresh()
    assert stream.getvalue().splitlines() == ["decoding the photos: 10 of 20", "checking the photos: 10 of 20"]
    assert "decoding the photos" in (shown := terminal.shown())
    assert "checking the photos" in shown


def test_a_terminal_shows_how_far_a_download_is(terminal: Terminal):
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, TerminalProgress)
        for event in (received(0, None), received(48.3), received(50, None)):
            listener(event)
            listener._progress.refresh()
    shown = terminal.shown()
    assert "downloading it.tar.gz" in shown
    assert "48.3 of 161.2 MiB" in shown
    assert " 50.0 MiB" in shown


def test_ctrl_c_gives_the_cursor_and_the_streams_back(terminal: Terminal):
    def interrupted() -> None:
        with progress_for(terminal.stream) as listener:
            listener(story()[0])
            raise KeyboardInterrupt

    streams = (sys.stdout, sys.stderr)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (sys.stdout, sys.stderr) == streams
    shown = terminal.shown()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_a_terminal_without_cursor_control_gets_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, LineProgress)
    terminal.shown()


def test_a_group_of_classes_without_a_test_image_is_left_out():
    stream = io.StringIO()
    listener = LineProgress(stream)
    listener(events.Evaluated(0, "boosted", 50.0, 100.0, 50.0, math.nan, (50.0, math.nan)))
    listener(events.Evaluated(0, "boosted", 60.0, 100.0, math.nan, 60.0, (math.nan, 60.0)))
    lines = [line.partition(" boosted")[2] for line in stream.getvalue().splitlines()]
    assert lines == [": 50.00 % (old 50.00, top-5 100.00)", ": 60.00 % (new 60.00, top-5 100.00)"]
