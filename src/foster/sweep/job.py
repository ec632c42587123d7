"""The process of one run of a sweep: its slot, its start, its stop and its exit code."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foster.errors import DeviceError
from foster.events import RunEnded
from foster.experiment.event_log import FollowedRun, State
from foster.experiment.folder import RunFolder
from foster.settings.base import flat
from foster.settings.experiment import Settings
from foster.settings.toml import value_text
from foster.sweep.grid import PlannedRun
from foster.system.files import explained_write_errors, write_text
from foster.system.memory import num_cores
from foster.system.signals import SIGNALS, STOPS_WITH_INPUT

LOG_TAIL_BYTES = 20_000

LOST = -1000
"""The exit code of a process whose machine is lost."""


@dataclass(frozen=True)
class Slot:
    """A place for one run at a time: a share of a GPU, named as in CUDA_VISIBLE_DEVICES, or of the CPU."""

    gpu: str | None = None
    is_remote: bool = False
    """Whether it is on a machine of a cluster, which chooses the GPU."""

    @property
    def name(self) -> str:
        if self.is_remote:
            return "cluster"
        return "CPU" if self.gpu is None else f"GPU {self.gpu}"


class Process(Protocol):
    """A local process, or one on a machine of a cluster."""

    @property
    def stdin(self) -> Any: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


Spawn = Callable[[Sequence[str], Mapping[str, str], Path, Slot], Process]
"""Starts a process from its command, environment, log and slot."""


@dataclass
class SweptRun(FollowedRun):
    """One run of a sweep; it has a process once it is started."""

    settings: Settings = field(kw_only=True)
    state: State = State.WAITING
    message: str = ""
    is_continued: bool = False
    slot: Slot = Slot()
    process: Process = field(init=False, repr=False, compare=False)
    log_start: int = 0
    """The position in the log at which the output of this process begins."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def outcome(self) -> str:
        """How the run started or ended, in a few words."""
        if self.state is State.RUNNING:
            return f"{'continued' if self.is_continued else 'started'} on {self.slot.name}"
        if self.state is State.FINISHED and isinstance(self.progress.end, RunEnded):
            return f"finished, average incremental accuracy {self.progress.end.average_incremental_accuracy:.2f} %"
        return f"{self.state}: {self.message}" if self.message else str(self.state)

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    def start(self, slot: Slot, environment: Mapping[str, str], spawn: Spawn) -> None:
        """Start or continue the run."""
        command = [sys.executable, "-P", "-m", "foster", *_arguments(RunFolder(self.folder), self.settings), "--quiet"]
        with explained_write_errors(self.log), self.log.open("ab") as file:
            self.log_start = file.tell()
        self.process = spawn(command, {**environment, STOPS_WITH_INPUT: "1"}, self.log.absolute(), slot)
        self.state, self.slot = State.RUNNING, slot

    def request_stop(self, number: int) -> None:
        """Ask the run through its standard input to save and stop, as after this signal."""
        with suppress(OSError):
            self.process.stdin.write(f"{number:d}\n".encode())

    def release(self) -> None:
        """Close the pipe, which stops a run that is still running, and drop the process. A cluster can then use its
        share of the machine again."""
        with suppress(OSError):
            self.process.stdin.close()
        del self.process

    def ended(self, exit_code: int, was_stopped: bool) -> tuple[State, str]:
        """The state of a run whose process ended with this exit code, and the reason: the last line of its log."""
        if exit_code == 0:
            return State.FINISHED, ""
        if was_stopped and exit_code - 128 in SIGNALS:
            return State.STOPPED, ""
        if exit_code > 0:
            return State.FAILED, _last_line(self.log, self.log_start) or f"exit code {exit_code}"
        if exit_code == LOST:
            return State.KILLED if was_stopped else State.FAILED, "its machine was lost"
        # A process that a signal ends cannot save.
        message = f"ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
        if was_stopped and -exit_code in (*SIGNALS, signal.SIGKILL):
            return State.KILLED, message
        return State.FAILED, message + ("; is the main memory full?" if exit_code == -signal.SIGKILL else "")


def find_slots(runs: Sequence[PlannedRun], jobs_per_gpu: int, jobs: int) -> list[Slot]:
    """The slots for these runs on this machine: `jobs_per_gpu` on each visible GPU, and `jobs` on the CPU."""
    return needed_slots(runs, [Slot(gpu) for gpu in visible_gpus()] * jobs_per_gpu, [Slot()] * jobs)


def needed_slots(runs: Sequence[PlannedRun], on_gpus: list[Slot], on_cpus: list[Slot]) -> list[Slot]:
    """The slots that some run needs. Raises DeviceError if a run needs a GPU and there is none."""
    wanted = {needs_gpu(run.settings, bool(on_gpus)) for run in runs}
    if True in wanted and not on_gpus:
        raise DeviceError("there is no GPU for device 'cuda'; use device=cpu or auto")
    return [*(on_gpus if True in wanted else ()), *(on_cpus if False in wanted else ())]


def visible_gpus() -> list[str]:
    """The value of CUDA_VISIBLE_DEVICES for each GPU that this process may use."""
    import torch

    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = allowed.split(",") if allowed else [str(index) for index in range(num_gpus)]
    return [name.strip() for name in names[:num_gpus]]


def needs_gpu(settings: Settings, has_gpus: bool) -> bool:
    return has_gpus if settings.device == "auto" else settings.device != "cpu"


def environment_for(num_slots: int) -> dict[str, str]:
    """The environment of every run: its share of the CPU cores, and this package on PYTHONPATH."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // max(1, num_slots))))
    package_folder = str(Path(__file__).parents[2])
    known = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{package_folder}{os.pathsep}{known}" if known else package_folder
    return environment


def spawn_here(command: Sequence[str], environment: Mapping[str, str], log: Path, slot: Slot) -> Process:
    return spawned(command, {**environment, "CUDA_VISIBLE_DEVICES": slot.gpu or ""}, log)


def _arguments(folder: RunFolder, settings: Settings) -> list[str]:
    """The arguments of `foster` that start the run, or continue the run in the folder with these settings."""
    # The checked settings are written, because the file that they came from may change during the sweep.
    settings_path = folder.path.with_name(f"{folder.path.name}.toml")
    write_text(settings_path, settings.toml())
    if not folder.holds_run:
        return ["run", str(settings_path), "--out", str(folder.path)]
    before, now = flat(folder.settings().nested()), flat(settings.nested())
    changes = [f"{key}={value_text(value)}" for key, value in now.items() if value not in (before.get(key), None, "")]
    plugins = [f"--plugin={plugin}" for plugin in settings.plugins]
    return ["resume", str(folder.path), *(change for change in changes if not change.startswith("plugins=")), *plugins]


def spawned(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The process of a run; its output is appended to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            # The system closes this pipe when the sweep is killed; the run then stops as well.
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            # Otherwise the terminal's Ctrl-C would reach the run as a second signal, which ends it at once.
            start_new_session=True,
        )


def _last_line(log: Path, start: int) -> str:
    """The last line of the log after `start`: the error message."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("foster: ")
