"""One run of a sweep in a process of its own: how it is started, told to stop, and what its end means."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foster.errors import TrainingError, explained
from foster.settings.experiment import Settings
from foster.sweep.slots import Slot
from foster.sweep.table import RunStatus, State
from foster.system.files import write_text, written
from foster.system.signals import SIGNALS, STOPS_WITH_INPUT

LOG_TAIL_BYTES = 20_000

LOST = -1000
"""What stands for the exit code of a process whose machine is gone."""


class Process(Protocol):
    """A process here, or on a machine of a cluster."""

    @property
    def stdin(self) -> Any: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


class Starter(Protocol):
    """Starts processes, here or elsewhere."""

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, slot: Slot) -> Process: ...


@dataclass(frozen=True)
class Job:
    """A run that is being executed. Its log is older than this execution up to `log_start`."""

    run: RunStatus
    slot: Slot
    process: Process
    log_start: int

    def tell_to_stop(self, number: int) -> None:
        """Ask the run to save and to stop as that signal would make it, through the pipe that is its input."""
        with suppress(OSError):
            self.process.stdin.write(f"{number:d}\n".encode())

    def let_go(self) -> None:
        """Close the pipe, at which a run that is still there stops by itself."""
        with suppress(OSError):
            self.process.stdin.close()

    def take_outcome(self, exit_code: int, was_stopped: bool) -> None:
        """Note what the end of the process means, and why it came to it."""
        self.let_go()
        self.run.state, self.run.message = self._outcome(exit_code, was_stopped)

    def _outcome(self, exit_code: int, was_stopped: bool) -> tuple[State, str]:
        if exit_code == 0:
            return State.FINISHED, ""
        if was_stopped and exit_code - 128 in SIGNALS:
            return State.STOPPED, ""
        if exit_code > 0:
            return State.FAILED, _last_line(log_path(self.run), self.log_start) or f"exit code {exit_code}"
        # Nobody can save anything when a signal ends it.
        message = f"ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
        if was_stopped and -exit_code in (*SIGNALS, signal.SIGKILL):
            return State.KILLED, message
        return State.FAILED, message + ("; is the main memory full?" if exit_code == -signal.SIGKILL else "")


class Here:
    """Starts processes on this machine."""

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, slot: Slot) -> Process:
        with explained(TrainingError, "cannot start a process for it"):
            return spawned(command, {**environment, "CUDA_VISIBLE_DEVICES": slot.gpu or ""}, log)


def start(run: RunStatus, settings: Settings, slot: Slot, environment: Mapping[str, str], starter: Starter) -> Job:
    """Start or continue the run; a problem with that is one of this run alone."""
    # Its settings as they were checked: the file they came from may change while the sweep goes on.
    settings_path = run.folder.with_name(f"{run.folder.name}.toml")
    write_text(settings_path, settings.toml())
    command = [sys.executable, "-P", "-m", "foster", "run", str(settings_path), "--out", str(run.folder)]
    command += ["--resume", "--quiet"]
    log = log_path(run)
    with written(log), log.open("ab") as file:
        log_start = file.tell()
    process = starter.start(command, {**environment, STOPS_WITH_INPUT: "1"}, log.absolute(), slot)
    run.state, run.slot, run.began = State.RUNNING, slot.name, time.monotonic()
    return Job(run, slot, process, log_start)


def spawned(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The process of a run, its words added to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            # Unbuffered, and closed by the system when the sweep is killed: then the run stops as well.
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            # The terminal's Ctrl-C would reach it as well, and two of them end a run at once.
            start_new_session=True,
        )


def log_path(run: RunStatus) -> Path:
    """Where the output of the run's process goes."""
    return run.folder.with_name(f"{run.folder.name}.log")


def _last_line(log: Path, start: int) -> str:
    """The last line that was written to the log after `start`: what an error ends with."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("foster: ")
