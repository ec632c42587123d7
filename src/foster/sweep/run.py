"""A sweep: many runs, each in a process and a folder of its own, several at a time on every GPU or on the CPU.

A run is recognised by its settings and the version of its plug-ins, not by the name of its folder.
"""

import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from foster.data.download import Follower
from foster.errors import FosterError, SettingsError, TrainingError
from foster.events import TaskEnded
from foster.experiment.event_log import State
from foster.experiment.first_task import first_task
from foster.experiment.folder import RunFolder, differing_key
from foster.experiment.parts import check_data, check_named, has_same_plugins, plugins_used
from foster.experiment.results import RESULTS, find_results
from foster.reports.progress import progress_for
from foster.reports.tables import shown, summary_grids
from foster.settings.experiment import Settings
from foster.sweep.grid import PlannedRun, distinct_name
from foster.sweep.job import LOST, Slot, Spawn, SweptRun, environment_for, find_slots, needs_gpu, spawn_here
from foster.system.counts import counted
from foster.system.locking import locked
from foster.system.output import show
from foster.system.signals import Stopped, received_signals, stop_on_signals

SECONDS_BETWEEN_POLLS = 0.25


def placed(runs: Sequence[PlannedRun], out: Path) -> list[PlannedRun]:
    """The runs under the names of their folders in `out`.

    If `out` already has a run with the same settings, plug-ins and data, it is continued, or skipped if it is finished.
    If another run has the name, the new one gets a suffix. Runs that differ only in where and how they compute are the
    same, unless the sweep varies these settings. Settings that would make a run fail at once raise an error here.
    """
    existing = _existing(out)
    placed_runs = [replace(run, name=_name(run, out, existing)) for run in runs]
    for run in placed_runs:
        _check(run, out)
    new = [run.settings for run in placed_runs if not RunFolder(out / run.name).holds_run]
    named = {(each.method, each.backbone, each.weights, each.options.unlabeled_source): each for each in new}
    for settings in named.values():
        check_named(settings)
    return placed_runs


def _existing(out: Path) -> dict[str, Settings]:
    """The settings of all readable runs in `out`, by the names of their folders."""
    folders = sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []
    existing = {}
    for folder in folders:
        try:
            existing[folder.name] = RunFolder(folder).settings()
        except FosterError:
            continue
    return existing


def _name(run: PlannedRun, out: Path, existing: Mapping[str, Settings]) -> str:
    ours = run.settings
    same = [
        name
        for name, settings in existing.items()
        if settings.scenario == ours.scenario
        and differing_key(settings.nested(), ours.nested(), counted=run.varied) is None
        and not _reads_elsewhere(settings, ours)
        and has_same_plugins(RunFolder(out / name).read_results(), ours)
    ]
    if same:
        # Of several, a finished one: it need not be trained again.
        return min(same, key=lambda name: (not RunFolder(out / name).is_finished, name != run.name, name))
    versions = "".join(plugins_used(ours).values())
    return distinct_name(run.name, ours, versions) if run.name in existing else run.name


def _reads_elsewhere(before: Settings, now: Settings) -> bool:
    """Whether two runs read a user's images from two folders. If that of `before` no longer exists, it was moved."""
    folder, other = before.dataset_settings.folder, now.dataset_settings.folder
    return now.has_own_images and folder.is_dir() and folder.resolve() != other.resolve()


def _check(run: PlannedRun, out: Path) -> None:
    if run.settings.device.startswith("cuda:"):
        raise SettingsError(
            f"device: '{run.settings.device}' cannot be chosen in a sweep, which assigns the GPUs itself; "
            "use auto, cuda or cpu, and limit the GPUs with CUDA_VISIBLE_DEVICES"
        )
    folder = RunFolder(out / run.name)
    if folder.holds_run:
        folder.check_same(run.settings)
        return
    folder.check_free()
    first_task(run.settings)


def execute(
    runs: Sequence[PlannedRun],
    out: Path,
    jobs_per_gpu: int = 1,
    jobs: int = 1,
    cluster: str | None = None,
    after_run: Callable[[], None] | None = None,
) -> None:
    """Execute all runs on this machine, or on a Ray cluster."""
    if not cluster:
        sweep(runs, out, find_slots(runs, jobs_per_gpu, jobs), after_run=after_run)
        return
    from foster.sweep.cluster import LOCAL, connected

    # Both take seconds.
    line = "starting Ray on this machine ..." if cluster == LOCAL else f"connecting to {cluster} ..."
    print(line, file=sys.stderr, flush=True)
    with connected(cluster, jobs_per_gpu, jobs) as machines:
        sweep(runs, out, machines.slots(runs), machines.start, after_run)


def sweep(
    runs: Sequence[PlannedRun],
    out: Path,
    slots: Sequence[Slot],
    elsewhere: Spawn | None = None,
    after_run: Callable[[], None] | None = None,
) -> None:
    """Execute all runs that are not finished yet in folders below `out`, as many at a time as there are slots.

    A run that fails does not stop the others; at the end a `TrainingError` names the first that did. With `elsewhere`,
    the slots are on the machines of a cluster, which see the same folders. `after_run` is called when a run has
    finished; without it, a table of all finished runs is shown at the end.
    """
    out = out.absolute() if elsewhere else out
    runs = placed(runs, out)
    _check_data([run.settings for run in runs if not RunFolder(out / run.name).is_finished])
    with locked(out), received_signals() as received:
        swept = [status_of(run, out) for run in runs]
        _Executor(swept, out, list(slots), received, elsewhere or spawn_here, after_run or (lambda: None)).execute()
    finished = [run.folder / RESULTS for run in swept if run.state is State.FINISHED]
    tables = [shown(summary_grids(find_results(finished)))] if finished and after_run is None else []
    show(*tables, f"{counts(swept)}; results: {out}")
    if received and any(run.state in (State.STOPPED, State.KILLED, State.WAITING) for run in swept):
        num_killed = sum(run.state is State.KILLED for run in swept)
        lost = f"{counted(num_killed, 'run')} could not save and will continue from the last checkpoint"
        stopped = Stopped(received[0])
        stopped.add_hint(f"{lost if num_killed else 'all is saved'}; continue with the same command")
        raise stopped
    failed = [run for run in swept if run.state is State.FAILED]
    if failed:
        first = f"{failed[0].name}: {failed[0].message}"
        raise TrainingError(
            f"{len(failed)} of {counted(len(swept), 'run')} failed: {first}{' ...' if len(failed) > 1 else ''}; "
            f"see {shlex.quote(str(failed[0].log))}"
        )


def preview(runs: Sequence[PlannedRun], out: Path, jobs_per_gpu: int, jobs: int) -> str:
    """A line for each run with its state, and a line with their number and the slots."""
    slots = find_slots(runs, jobs_per_gpu, jobs)
    lines = []
    for run in placed(runs, out):
        status = status_of(run, out)
        is_to_continue = status.is_continued and status.state is State.WAITING
        lines.append(f"{'to continue' if is_to_continue else status.state:<12}{run.name}")
    devices = ", ".join(slot.name for slot in slots)
    return "\n".join([*lines, f"{counted(len(runs), 'run')}, {len(slots)} at a time ({devices}), in {out}"])


def status_of(run: PlannedRun, out: Path) -> SweptRun:
    """The state of a run before the sweep starts."""
    folder = RunFolder(out / run.name)
    swept = SweptRun(folder.path, settings=run.settings, is_continued=folder.holds_run)
    swept.read_events()
    if folder.is_finished:
        swept.state = State.FINISHED
    return swept


def _check_data(needed: Sequence[Settings]) -> None:
    """Read all data once, and download what is missing, before any run starts."""
    different = {(each.dataset, each.data, each.photos, each.options.unlabeled_source): each for each in needed}
    with stop_on_signals() as stop, progress_for() as listener:
        for settings in different.values():
            check_data(settings, Follower(listener, stop))
        stop.raise_if_set()


def say(line: str) -> None:
    """Write a line to standard error. A closed stream does not stop a sweep."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def counts(runs: Sequence[SweptRun]) -> str:
    """`6 runs: 2 running, 1 finished, 3 waiting`."""
    num_in = Counter(run.state for run in runs)
    parts = ", ".join(f"{num_in[state]} {state}" for state in State if num_in[state])
    return f"{counted(len(runs), 'run')}: {parts}"


@dataclass
class _Executor:
    """Starts runs in free slots, follows them, and passes signals on to them. A line tells when a run starts, learns a
    task or ends."""

    runs: Sequence[SweptRun]
    out: Path
    free: list[Slot]
    received: list[int]
    spawn: Spawn
    after_run: Callable[[], None]
    num_forwarded: int = 0

    def __post_init__(self) -> None:
        self._environment = environment_for(min(len(self.free), len(self._in_state(State.WAITING))))
        self._has_gpus = any(slot.gpu is not None for slot in self.free)

    def execute(self) -> None:
        """Execute all runs until each is finished, failed or stopped."""
        watch = f"foster watch {shlex.quote(str(self.out))}"
        say(f"{counts(self.runs)}, {len(self.free)} at a time; live: {watch}")
        for run in self._in_state(State.FINISHED):
            say(f"{run.name}: {run.outcome}")
        try:
            while self._in_state(State.RUNNING) or (self._in_state(State.WAITING) and not self.received):
                self._forward_signals()
                if not self.received:
                    self._start_waiting()
                time.sleep(SECONDS_BETWEEN_POLLS)
                for run in self._in_state(State.RUNNING):
                    self._follow(run)
        finally:
            # After an error of the sweep itself, the remaining runs save and stop.
            for run in self._in_state(State.RUNNING):
                run.release()

    def _in_state(self, state: State) -> list[SweptRun]:
        return [run for run in self.runs if run.state is state]

    def _forward_signals(self) -> None:
        """The first signal asks the runs to save and stop; the next one ends them at once."""
        for number in self.received[self.num_forwarded :]:
            self.num_forwarded += 1
            is_first = self.num_forwarded == 1
            if is_first:
                say("stopping: the runs save and stop; press Ctrl-C again to end them at once")
            for run in self._in_state(State.RUNNING):
                if is_first:
                    run.request_stop(number)
                else:
                    run.process.send_signal(signal.SIGKILL)

    def _start_waiting(self) -> None:
        for run in self._in_state(State.WAITING):
            is_for_gpu = needs_gpu(run.settings, self._has_gpus)
            slot = next((slot for slot in self.free if (slot.gpu is not None) == is_for_gpu), None)
            if slot is not None:
                run.start(slot, self._environment, self.spawn)
                say(f"{run.name}: {run.outcome}")
                self.free.remove(slot)

    def _follow(self, run: SweptRun) -> None:
        """Read the new events of a run. If it has ended, its slot is free again."""
        exit_code = run.process.poll()
        for event in run.read_events():
            if isinstance(event, TaskEnded):
                say(f"{run.name}: {event.accuracy:.2f} % after task {event.task + 1}/{run.progress.num_tasks}")
        if exit_code is None:
            return
        run.release()
        self.free.append(run.slot)
        if exit_code == LOST and not self.received:
            run.state, run.is_continued = State.WAITING, True
            say(f"{run.name}: its machine was lost; it continues from its checkpoint on another")
            return
        run.state, run.message = run.ended(exit_code, was_stopped=bool(self.received))
        say(f"{run.name}: {run.outcome}")
        if run.state is State.FINISHED:
            self.after_run()
