import io
import os
import pty
import sys
from collections.abc import Iterable
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
        clock.now += 20
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


@pytest.mark.parametrize(
    ("seconds_per_epoch", "epochs", "shown"),
    [(1.0, 40, [15, 30]), (20.0, 5, [1, 2, 3, 4]), (0.01, 100, [])],
)
def test_plain_lines_come_now_and_then(seconds_per_epoch: float, epochs: int, shown: Iterable[int]):
    assert epochs_shown(seconds_per_epoch, epochs) == list(shown)


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
    assert download_shown(1.0, 161.2) == [begin, *(f"{begin}: {k}.0 of 161.2 MiB" for k in range(15, 160, 15)), end]
    assert download_shown(0.5, None) == [begin, *(f"{begin}: {k}.0 MiB" for k in (30, 60, 90, 120, 150))]


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
    assert "task 2/5 boost" in shown
    assert "10/100" in shown
    assert "loss 1.234 = L_LA 0.900 + L_KD 0.334" in shown
    assert "3 min 20 s left" in shown
    assert "boosted: 95.25 % (old 94.00, new 96.50, top-5 100.00)" in shown


def test_output_to_a_file_stays_in_the_file(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with progress_for(terminal.stream):
        print("a table")
        assert sys.stdout.getvalue() == "a table\n"


def test_photos_that_are_decoded_are_counted(terminal: Terminal):
    stream = io.StringIO()
    event = events.Decoding("the photos", 10, 20)
    LineProgress(stream, Clock())(event)
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, TerminalProgress)
        listener(event)
        listener._progress.refresh()
    assert stream.getvalue().splitlines() == ["reading the photos: 10 of 20"]
    assert "reading the photos" in terminal.shown()


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


def test_a_terminal_without_cursor_control_gets_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    with progress_for(terminal.stream) as listener:
        assert isinstance(listener, LineProgress)
    terminal.shown()


def line_of(event: Event, *before: Event) -> str:
    """The last line that is shown of an event."""
    stream = io.StringIO()
    listener = LineProgress(stream, Clock())
    for each in (*before, event):
        listener(each)
    return stream.getvalue().splitlines()[-1]


RUN = events.RunStarted("foster", "digits-b0-inc2", 5, "", "cpu")
LEARN = events.LearnPlanned(("2 new classes",), 60.0)


def evaluated(task: int, old: float | None, new: float | None, top5: float = 100.0) -> events.Evaluated:
    return events.Evaluated(task, "boosted", 91.11, top5, old, new, (91.11,) * (task + 1))


@pytest.mark.parametrize(
    ("before", "event", "line"),
    [
        (RUN, events.RunResumed(2, "compress", 39), "resumed at task 3/5 compress, epoch 40"),
        (RUN, events.RunResumed(2, "boost", 0, is_phase_done=True), "resumed at task 3/5 after boost"),
        (RUN, events.RunResumed(3, "", 0), "resumed at task 4/5"),
        (RUN, events.TaskStarted(0, 5, 0, 2, 1234), "task 1/5: 2 new classes, none known, 1,234 images"),
        (RUN, evaluated(0, None, 50.0), "task 1/5 boosted: 91.11 % (new 50.00, top-5 100.00)"),
        (RUN, evaluated(0, 50.0, None), "task 1/5 boosted: 91.11 % (old 50.00, top-5 100.00)"),
        (
            RUN,
            events.PhotosDecoded("it", 1300, 0, 2**30, "disk", 2.0),
            "1,300 photos of it: 1.0 GiB on disk, in 2 s (650 a second)",
        ),
        # A learn has one task, and the words of the paper are not for who has photos.
        (LEARN, events.PhaseEnded(1, "boost", 3.0), "learning the new classes beside the known ones: done in 3 s"),
        (
            LEARN,
            events.RunResumed(1, "compress again", 0),
            "going on where it stopped: compressing both into one network again, epoch 1",
        ),
        (LEARN, evaluated(0, None, 91.11), "learned: 91.11 % of held-out images"),
        (LEARN, evaluated(1, 93.33, 88.89), "before compression: 91.11 % of held-out images (known 93.33, new 88.89)"),
    ],
)
def test_an_event_is_one_line_in_the_words_of_a_run_or_of_a_learn(before: Event, event: Event, line: str):
    assert line_of(event, before) == line


def test_losses_are_a_sum_of_named_terms_or_one_number():
    def shown(before: Event, **losses: float) -> str:
        stream, clock = io.StringIO(), Clock()
        listener = LineProgress(stream, clock)
        for event in (before, events.PhaseStarted(1, 5, "boost", 100, 7), epoch_ended(50, **losses)):
            clock.now += 100
            listener(event)
        return stream.getvalue().splitlines()[-1].split(", ")[1]

    assert shown(RUN, L_CE=0.5) == "loss 0.500"
    assert shown(RUN, L_LA=0.9, L_KD=0.334) == "loss 1.234 = L_LA 0.900 + L_KD 0.334"
    assert shown(RUN, L_LA=0.9, total=7.0) == "loss 7.000"
    assert shown(LEARN, L_LA=0.9, L_KD=0.334) == "loss 1.234"
