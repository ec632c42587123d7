"""`kill -9` at any time, again and again: the run ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import forking
from tiny_runs import OVERRIDES, Outcome, assert_same, outcome, records_of, start_or_resume, tiny_settings

from foster.experiment.folder import RunFolder

SECONDS = 300.0
"""No attempt takes longer, unless it hangs."""


def num_lines(path: Path) -> int:
    return (path / "events.jsonl").read_bytes().count(b"\n") if (path / "events.jsonl").exists() else 0


def wait_for_lines(path: Path, num_wanted: int, is_alive: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while num_lines(path) < num_wanted and is_alive():
        assert time.monotonic() < until, "the run hangs"
        time.sleep(0.001)


def test_a_run_that_is_killed_again_and_again_equals_an_uninterrupted_one(
    tmp_path: Path, uninterrupted: Callable[..., Outcome]
):
    path, chance, num_kills = tmp_path / "run", random.Random(1993), 0
    expected = uninterrupted("foster")
    while not RunFolder(path).is_finished:
        process = forking().Process(target=start_or_resume, args=(path, tiny_settings()))
        process.start()
        if num_kills < 2:
            # Where in the work it dies depends on the events that it tells, and a little on chance.
            wait_for_lines(path, num_lines(path) + chance.randint(1, 9), process.is_alive)
            time.sleep(chance.random() * 0.02)
            process.kill()
        process.join(SECONDS)
        assert process.exitcode in (0, -signal.SIGKILL)
        num_kills += process.exitcode == -signal.SIGKILL
    assert num_kills
    assert_same(outcome(path), expected)
    assert not [file.name for file in path.rglob("*.part")], "what killed writers left behind is cleaned up"
    assert all(line["event"] for line in records_of(path / "events.jsonl"))


@pytest.mark.slow
def test_the_command_survives_many_kills_over_one_run(tmp_path: Path):
    """The real command, a process for each attempt; the last result of this test stands in docs/robustness.md."""
    path, chance, num_kills = tmp_path / "run", random.Random(1993), 0
    overrides = [*OVERRIDES, "epochs_scale=0.2"]
    command = [sys.executable, "-m", "foster"]
    begin, go_on = ["run", "digits", *overrides, "--out", str(path), "--quiet"], ["resume", str(path), "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = ["run", "digits", *overrides, "--out", str(tmp_path / "whole"), "--quiet"]
    subprocess.run([*command, *whole], check=True, env=environment, timeout=SECONDS, capture_output=True)
    began = time.monotonic()
    while not RunFolder(path).is_finished:
        arguments = go_on if RunFolder(path).holds_run else begin
        with subprocess.Popen([*command, *arguments], env=environment, stdout=subprocess.DEVNULL) as process:
            if num_kills < 40:
                wait_for_lines(path, num_lines(path) + chance.randint(1, 12), lambda: process.poll() is None)
                time.sleep(chance.random() * 0.1)
                process.kill()
            assert process.wait(SECONDS) in (0, -signal.SIGKILL)
            num_kills += process.returncode == -signal.SIGKILL
    assert num_kills == 40
    assert_same(outcome(path), outcome(tmp_path / "whole"))
    lines = records_of(path / "events.jsonl")
    num_saved = sum(line["event"] == "CheckpointWritten" for line in lines)
    num_resumed = sum(line["event"] == "RunResumed" for line in lines)
    seconds = time.monotonic() - began
    print(f"{num_kills} kills, {num_resumed} resumes from {num_saved} checkpoints, {seconds:.0f} s; results equal")
