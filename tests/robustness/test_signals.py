"""Ctrl-C, SIGTERM and SIGHUP: the step is finished, all is saved, and the user is told how to go on."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import started
from held import held
from tiny_runs import OVERRIDES, Outcome, assert_same, outcome, records_of, resume

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
    assert records_of(path / "events.jsonl")[-1]["event"] == "CheckpointWritten"
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
    assert records_of(path / "events.jsonl")[-1]["event"] == "CheckpointWritten"
    resume(path)
    assert_same(outcome(path), uninterrupted("foster"))
