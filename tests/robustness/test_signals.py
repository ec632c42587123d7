"""Ctrl-C, SIGTERM and SIGHUP: the step is finished, all is saved, and the user is told how to go on."""

import os
import pty
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from forked import started
from tiny_runs import OVERRIDES, Outcome, assert_same, outcome, records_of, resume

pytestmark = pytest.mark.usefixtures("default_signals")

BOOST = '"phase": "boost"'
"""What events tell once boosting has begun."""


def boosting(run: Path, said: Path) -> BaseProcess:
    """A run that waits for a signal in its first boost."""
    events = run / "events.jsonl"
    process = started(["run", "digits", *OVERRIDES, "--out", str(run)], said, held_at=(events, BOOST))
    until = time.monotonic() + 300
    while not events.exists() or BOOST not in events.read_text(encoding="utf-8"):
        assert process.is_alive()
        assert time.monotonic() < until
        time.sleep(0.002)
    return process


def assert_saved(run: Path) -> None:
    assert records_of(run / "events.jsonl")[-1]["event"] == "CheckpointWritten"


def test_a_signal_saves_says_how_to_continue_and_exits_with_its_code(tmp_path: Path):
    """SIGTERM stops a learn in test_learn_resume.py."""
    path, said = tmp_path / "run", tmp_path / "said"
    process = boosting(path, said)
    os.kill(process.pid, signal.SIGINT)
    process.join(120)
    assert process.exitcode == 130
    lines = said.read_text(encoding="utf-8").splitlines()
    assert lines[-1] == f"foster: stopped by SIGINT; all is saved; continue with: foster resume {path}"
    assert not [line for line in lines if "Traceback" in line]
    assert_saved(path)


def test_a_terminal_that_is_closed_lets_the_run_save(tmp_path: Path, uninterrupted: Callable[..., Outcome]):
    """The window is gone before the run has said anything of it: nothing that is written to it arrives."""
    path = tmp_path / "run"
    window, terminal = pty.openpty()
    process = boosting(path, Path(os.ttyname(terminal)))
    os.close(terminal)
    os.close(window)
    process.join(120)
    assert process.exitcode == 129
    assert_saved(path)
    resume(path)
    assert_same(outcome(path), uninterrupted("foster"))
