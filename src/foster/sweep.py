"""A sweep: many runs, each in a process and a folder of its own, several at a time on every GPU or on the CPU."""

import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from foster.config import Settings
from foster.errors import FolderError, SettingsError, TrainingError
from foster.files import unwritable, write_text
from foster.locking import locked
from foster.networks import BACKBONES, build_backbone
from foster.reports.results import find_results
from foster.reports.tables import summary_table
from foster.run_folder import RESULTS, RunFolder
from foster.stopping import SIGNALS, Stopped
from foster.sweep_grid import PlannedRun
from foster.sweep_slots import Slot, environment_for, needs_gpu
from foster.sweep_table import Display, RunStatus, State, counts, display_for

SECONDS_BETWEEN_LOOKS = 0.25
LOG_TAIL_BYTES = 20_000


@dataclass(frozen=True)
class _Job:
    """A run that is being executed. Its log is older than this execution up to `log_start`."""

    run: RunStatus
    slot: Slot
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int


def sweep(runs: Sequence[PlannedRun], out: Path, slots: Sequence[Slot]) -> None:
    """Execute all runs that are not finished yet in folders below `out`, as many at a time as there are slots.

    A run that fails does not stop the others; at the end a `TrainingError` names those that did.
    """
    check_runs(runs, out)
    with locked(out), _heard_signals() as heard, display_for() as display:
        statuses = _Executor(runs, out, slots, display, heard).execute()
    finished = [run.folder / RESULTS for run in statuses if run.state is State.FINISHED]
    if finished:
        Console().print(summary_table(find_results(finished)))
    print(f"{counts(statuses)}; results: {out}")
    if heard and any(run.state in (State.STOPPED, State.WAITING) for run in statuses):
        stopped = Stopped(heard[0])
        stopped.add_hint(
            "all is saved; start the same sweep again to continue"
            if len(heard) == 1
            else "the runs were ended at once; start the same sweep again to continue from their last checkpoints"
        )
        raise stopped
    failed = [run for run in statuses if run.state is State.FAILED]
    if failed:
        first = f"{failed[0].name}: {failed[0].message}"
        raise TrainingError(
            f"{len(failed)} of {len(statuses)} runs failed: {first}{' ...' if len(failed) > 1 else ''}; "
            f"see {shlex.quote(str(_log_path(out, failed[0].name)))}"
        )


def check_runs(runs: Sequence[PlannedRun], out: Path) -> None:
    """Raise what would make a run fail at once: a folder that holds something else, an unknown backbone."""
    for run in runs:
        if run.settings.backbone not in BACKBONES:
            build_backbone(run.settings.backbone)
        if run.settings.device.startswith("cuda:"):
            raise SettingsError(
                f"device: '{run.settings.device}' cannot be chosen in a sweep, which hands out the GPUs itself; "
                "use auto, cuda or cpu, and limit the GPUs with CUDA_VISIBLE_DEVICES"
            )
        folder = RunFolder(out / run.name)
        if folder.holds_run:
            _check_same(run.settings, folder)
        else:
            folder.check_free()


def status_of(run: PlannedRun, out: Path) -> RunStatus:
    """How a run stands before the sweep starts."""
    folder = RunFolder(out / run.name)
    status = RunStatus(run.name, folder.path, is_continued=folder.holds_run)
    status.read_events()
    if folder.is_finished:
        status.state = State.FINISHED
    return status


class _Executor:
    """Starts runs where there is room, follows them, and hands on what the user wants of them."""

    def __init__(
        self, runs: Sequence[PlannedRun], out: Path, slots: Sequence[Slot], display: Display, heard: list[int]
    ) -> None:
        self._out = out
        self._settings = {run.name: run.settings for run in runs}
        self._statuses = [status_of(run, out) for run in runs]
        self._free = list(slots)
        self._environment = environment_for(min(len(slots), len(self._waiting)))
        self._has_gpus = any(slot.gpu is not None for slot in slots)
        self._display = display
        self._heard = heard
        self._num_forwarded = 0
        self._jobs: list[_Job] = []

    def execute(self) -> list[RunStatus]:
        """All runs until each is finished, failed or stopped."""
        self._display.say(f"{counts(self._statuses)}, {len(self._free)} at a time, in {self._out}")
        self._display.show(self._statuses)
        try:
            while self._jobs or (self._waiting and not self._heard):
                self._forward_signals()
                if not self._heard:
                    self._start_what_fits()
                time.sleep(SECONDS_BETWEEN_LOOKS)
                self._look()
                self._display.show(self._statuses)
        finally:
            # Only an error of the sweep itself leaves jobs here: nobody would look after them.
            for job in self._jobs:
                job.process.terminate()
            for job in self._jobs:
                job.process.wait()
        return self._statuses

    @property
    def _waiting(self) -> list[RunStatus]:
        return [run for run in self._statuses if run.state is State.WAITING]

    def _forward_signals(self) -> None:
        """The first signal asks the runs to save and stop, each one after it ends them at once."""
        while self._num_forwarded < len(self._heard):
            number = self._heard[self._num_forwarded]
            self._num_forwarded += 1
            is_first = self._num_forwarded == 1
            if is_first:
                self._display.say("stopping: the runs save where they are; press Ctrl-C again to end them at once")
            for job in self._jobs:
                job.process.send_signal(number if is_first else signal.SIGKILL)

    def _start_what_fits(self) -> None:
        for run in self._waiting:
            is_for_gpu = needs_gpu(self._settings[run.name], self._has_gpus)
            slot = next((slot for slot in self._free if (slot.gpu is not None) == is_for_gpu), None)
            if slot is not None:
                self._free.remove(slot)
                self._jobs.append(self._started(run, slot))

    def _started(self, run: RunStatus, slot: Slot) -> _Job:
        # Its settings as they were checked: the file they came from may change while the sweep goes on.
        settings_path = self._out / f"{run.name}.toml"
        write_text(settings_path, self._settings[run.name].toml())
        command = [sys.executable, "-P", "-m", "foster", "run", str(settings_path)]
        log = _log_path(self._out, run.name)
        try:
            with log.open("ab") as file:
                log_start = file.tell()
                process = subprocess.Popen(
                    [*command, "--out", str(run.folder), "--resume", "--quiet"],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self._environment | {"CUDA_VISIBLE_DEVICES": slot.gpu or ""},
                    # The terminal's Ctrl-C would reach it as well, and two of them end a run at once.
                    start_new_session=True,
                )
        except OSError as error:
            raise unwritable(log, error) from None
        run.state, run.place, run.began = State.RUNNING, slot.name, time.monotonic()
        return _Job(run, slot, process, log, log_start)

    def _look(self) -> None:
        """Take in what the runs tell, and free the slots of those that have ended."""
        for job in list(self._jobs):
            exit_code = job.process.poll()
            job.run.read_events()
            if exit_code is None:
                continue
            self._jobs.remove(job)
            self._free.append(job.slot)
            job.run.state, job.run.message = _outcome(job, exit_code, was_stopped=bool(self._heard))


def _outcome(job: _Job, exit_code: int, was_stopped: bool) -> tuple[State, str]:
    """What the end of a process means, and why it came to it."""
    if exit_code == 0:
        return State.FINISHED, ""
    by_signal = -exit_code if exit_code < 0 else exit_code - 128
    if was_stopped and by_signal in (*SIGNALS, signal.SIGKILL):
        return State.STOPPED, ""
    if exit_code < 0:
        hint = "; is the main memory full?" if by_signal == signal.SIGKILL else ""
        return State.FAILED, f"ended by signal {by_signal} ({signal.strsignal(by_signal)}){hint}"
    return State.FAILED, _last_line(job.log, job.log_start) or f"exit code {exit_code}"


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


def _log_path(out: Path, name: str) -> Path:
    return out / f"{name}.log"


def _check_same(settings: Settings, folder: RunFolder) -> None:
    """A folder is continued or skipped only where it holds this very run; only the data may have moved."""
    ours, theirs = settings.nested(), folder.settings().nested()
    for key in sorted(ours.keys() | theirs.keys()):
        if key != "data" and ours.get(key) != theirs.get(key):
            raise FolderError(
                f"'{folder.path}' holds a run with other settings ({key} differs); choose another folder with --out"
            )


@contextmanager
def _heard_signals() -> Iterator[list[int]]:
    """The numbers of the signals that came, in order.

    Those that were ignored before, as by `nohup`, stay ignored. Only the main thread can hear any.
    """
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    known = {number: signal.getsignal(number) for number in SIGNALS}
    previous = {number: handler for number, handler in known.items() if handler not in (signal.SIG_IGN, None)}
    for number in previous:
        signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
