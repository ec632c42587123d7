"""Ctrl-C, SIGTERM and SIGHUP as a process hears them."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foster.system.signals import (
    SIGNALS,
    Stopped,
    StopRequest,
    _listen_to_sweep,
    ending_on_signals,
    stop_on_signals,
)

pytestmark = pytest.mark.usefixtures("default_signals")


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_leaves_at_once_even_from_inside_a_long_computation(number: signal.Signals) -> None:
    """The computation is a call into C that does not let Python run, as a compilation or a long kernel is."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.wait(60) == -number


def test_the_first_signal_only_asks_and_the_old_handlers_come_back() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with stop_on_signals() as stop:
        with stop.at_once():
            assert not stop.is_set
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set
        stop.set(signal.SIGHUP)
        with pytest.raises(Stopped) as stopped, stop.at_once():
            pytest.fail("a wait begins")
    assert stopped.value.exit_code == 143
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


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
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("written", "heard"), [(b"", signal.SIGTERM), (b"2\n", signal.SIGINT)])
def test_a_sweep_that_writes_a_signal_or_ends_stops_its_run(
    written: bytes, heard: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "read", lambda descriptor, count: written)
    _listen_to_sweep(request := StopRequest())
    assert request.signal_number == heard


def test_outside_the_main_thread_there_is_a_request_that_nobody_sets() -> None:
    found: list[StopRequest] = []

    def work() -> None:
        with stop_on_signals() as stop:
            found.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not found[0].is_set
