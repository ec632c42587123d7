"""Ctrl-C, SIGTERM and SIGHUP as a process hears them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from foster.system.signals import (
    SIGNALS,
    STOPS_WITH_INPUT,
    Stopped,
    StopRequest,
    ending_on_signals,
    heard_signals,
    stop_on_signals,
)

pytestmark = pytest.mark.usefixtures("default_signals")

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

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


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_a_second_signal_leaves_at_once_even_from_inside_a_long_computation(
    first: signal.Signals, second: signal.Signals
) -> None:
    """The computation is a call into C that does not let Python run, as a compilation or a long kernel is."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(second)
        assert process.wait(60) == -second


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
    [(None, "15\n", 143), (None, "", 143), (signal.SIGINT, "15\n", 130)],  # nothing: the sweep has ended
)
def test_a_sweep_stops_its_run_through_a_pipe_also_where_a_signal_came_first(
    signalled: signal.Signals | None, told: str, exit_code: int
) -> None:
    with run_of_a_sweep() as (process, told_to, said):
        if signalled:
            process.send_signal(signalled)
            assert said.readline() == "asked\n"
        told_to.write(told)
        told_to.close()
        assert process.wait(60) == exit_code


def test_the_first_signal_only_asks_and_the_old_handlers_come_back() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with stop_on_signals() as stop:
        assert not stop.is_set
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set
        with pytest.raises(Stopped) as stopped:
            stop.raise_if_set()
    assert stopped.value.exit_code == 143
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_where_nothing_can_be_continued_a_signal_ends_the_work_with_its_code() -> None:
    with pytest.raises(SystemExit) as ended, ending_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143


def test_ctrl_c_during_an_import_ends_the_process_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled module loses the exception, or raises another one in its place."""
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "interrupted_module.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    with pytest.raises(SystemExit), ending_on_signals():
        __import__("interrupted_module")
    assert exits == [130]
    with pytest.raises(KeyboardInterrupt), ending_on_signals():
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_there_is_a_request_that_nobody_sets() -> None:
    found: list[StopRequest] = []

    def work() -> None:
        with stop_on_signals() as stop:
            found.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not found[0].is_set


def test_signals_are_heard_in_order() -> None:
    with heard_signals() as heard:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
    assert heard == [signal.SIGTERM, signal.SIGINT, signal.SIGINT]
