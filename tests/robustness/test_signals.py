"""Ctrl-C, SIGTERM and SIGHUP: the step is finished, all is saved, and the user is told how to go on."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from forked import started
from held import held
from tiny_runs import OVERRIDES, Outcome, assert_same, outcome, resume

from foster.experiment.folder import read_events
from foster.system.signals import STOPS_WITH_INPUT, Stopped, StopRequest, heard_signals, stop_on_signals

pytestmark = pytest.mark.usefixtures("default_signals")

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
BOOST = '"phase": "boost"'
"""What events tell once boosting has begun."""


def wait_for_boost(path: Path, is_alive: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not path.exists() or BOOST not in path.read_text(encoding="utf-8"):
        assert is_alive()
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_says_how_to_continue_and_exits_with_its_code(
    number: signal.Signals, exit_code: int, tmp_path: Path, uninterrupted: Callable[..., Outcome]
):
    path, said = tmp_path / "run", tmp_path / "said"
    events = path / "events.jsonl"
    process = started(["run", "digits", *OVERRIDES, "--out", str(path)], said, held_at=(events, BOOST))
    wait_for_boost(events, process.is_alive)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(300)
    assert process.exitcode == exit_code
    lines = said.read_text(encoding="utf-8").splitlines()
    assert "stopping after this step; press Ctrl-C again to leave at once" in lines
    assert lines[-1] == f"foster: stopped by {number.name}; all is saved; continue with: foster resume {path}"
    assert not [line for line in lines if "Traceback" in line]
    assert read_events(path / "events.jsonl")[-1]["event"] == "CheckpointWritten"
    resume(path)
    assert_same(outcome(path), uninterrupted("foster"))


def on_terminal() -> None:
    """In a process of a session of its own: its standard input becomes its terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_terminal_that_is_closed_lets_the_run_save(tmp_path: Path, uninterrupted: Callable[..., Outcome]):
    """The window is gone before the run has said anything of it: nothing that is written to it arrives."""
    path = tmp_path / "run"
    window, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "foster", "run", "digits", *OVERRIDES, "--out", str(path)],
        env={**ENVIRONMENT, **held(path / "events.jsonl", BOOST), "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=on_terminal,
    ) as process:
        os.close(terminal)
        wait_for_boost(path / "events.jsonl", lambda: process.poll() is None)
        os.close(window)
        assert process.wait(60) == 129
    assert read_events(path / "events.jsonl")[-1]["event"] == "CheckpointWritten"
    resume(path)
    assert_same(outcome(path), uninterrupted("foster"))


SLEEPER = """
import ctypes, os, signal, sys, time
from foster.system.signals import stop_on_signals
with stop_on_signals() as stop:
    print("ready", flush=True)
    while not stop.is_set:
        time.sleep(0.01)
    print("asked", flush=True)
    seconds = 60
    while seconds:  # a signal that is handled ends a sleep early
        seconds = ctypes.PyDLL(None).sleep(seconds)
"""


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_ctrl_c_leaves_at_once_even_from_inside_a_long_computation(
    first: signal.Signals, second: signal.Signals
):
    """The computation is a call into C that does not let Python run, as a compilation or a long kernel is."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(second)
        assert process.wait(60) == -second


TWICE = """
import signal, sys
from foster.system.signals import Stopped, stop_on_signals
try:
    with stop_on_signals() as stop:
        for number in sys.argv[1:]:
            signal.raise_signal(int(number))
        stop.raise_if_set()
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


@pytest.mark.parametrize(("first", "echo"), [("15", "15"), ("2", "15"), ("1", "1"), ("15", "1")])
def test_a_sigterm_or_sighup_right_after_a_signal_is_its_echo(first: str, echo: str):
    """Supervisors send it to the process and to its group, and a terminal that goes away hangs up twice."""
    done = subprocess.run([sys.executable, "-c", TWICE, first, echo], timeout=60, stderr=subprocess.DEVNULL)
    assert done.returncode == 128 + int(first)


def test_the_echo_of_a_sigterm_does_not_take_away_the_second_ctrl_c():
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


PATIENT = """
import sys, time
from foster.system import signals as stopping
stopping.ECHO_SECONDS = 0.1
with stopping.stop_on_signals() as stop:
    print("ready", flush=True)
    while not stop.is_set:
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(60)
"""


def test_a_sigterm_that_comes_later_leaves_at_once():
    with subprocess.Popen([sys.executable, "-c", PATIENT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


OBEDIENT = """
import os, sys, time
from foster.system.signals import Stopped, stop_on_signals
assert "FOSTER_STOPS_WITH_INPUT" in os.environ
try:
    with stop_on_signals() as stop:
        assert "FOSTER_STOPS_WITH_INPUT" not in os.environ
        print("ready", flush=True)
        while not stop.is_set:
            time.sleep(0.01)
        print("asked", flush=True)
        time.sleep(0.5)
        stop.raise_if_set()
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


@contextmanager
def run_of_a_sweep() -> Iterator[tuple["subprocess.Popen[str]", IO[str], IO[str]]]:
    """A process that listens as a sweep's run does, what it is told, and what it says."""
    with subprocess.Popen(
        [sys.executable, "-c", OBEDIENT],
        env={**ENVIRONMENT, STOPS_WITH_INPUT: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process, process.stdin, process.stdout


@pytest.mark.parametrize(
    ("signalled", "told", "exit_code"),
    [
        (None, "2\n", 130),
        (None, "15\n", 143),
        (None, "", 143),  # the sweep has ended
        (None, "nonsense", 143),
        (signal.SIGINT, "2\n", 130),
        (signal.SIGINT, "15\n", 130),
        (signal.SIGTERM, "15\n", 143),
        (signal.SIGHUP, "", 129),
    ],
)
def test_a_sweep_stops_its_run_through_a_pipe_also_where_a_signal_came_first(
    signalled: signal.Signals | None, told: str, exit_code: int
):
    with run_of_a_sweep() as (process, told_to, said):
        if signalled:
            process.send_signal(signalled)
            assert said.readline() == "asked\n"
        told_to.write(told)
        told_to.close()
        assert process.wait(60) == exit_code


def test_a_signal_after_the_sweep_has_spoken_lets_the_run_save():
    with run_of_a_sweep() as (process, told_to, said):
        told_to.write("15\n")
        told_to.flush()
        assert said.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 143


def test_the_first_signal_only_asks_and_the_old_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        assert not stop.is_set
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set
        with pytest.raises(Stopped) as stopped:
            stop.raise_if_set()
    assert stopped.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_there_is_a_request_that_nobody_sets():
    found: list[StopRequest] = []

    def work() -> None:
        with stop_on_signals() as stop:
            found.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not found[0].is_set


def test_signals_are_heard_in_order_without_their_echoes():
    with heard_signals() as heard:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
    assert heard == [signal.SIGTERM, signal.SIGINT, signal.SIGINT]
