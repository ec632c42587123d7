"""Compression of one FOSTER teacher with different settings, without training the teacher for each of them.

    python benchmarks/students.py prepare RUN cifar100-b0-inc10 validation_share=0.1 order_seed=7 --data data
    python benchmarks/students.py try RUN --data data --jobs 6 --out tries.json \\
        "" "foster.temperature=4" "foster.compress.epochs=780 foster.compress_cutmix=0.5"

`prepare` runs FOSTER until the teacher of the last task (or of another one, `--task 3`) is trained, and stops. `try`
continues to the end of that task, once for each string of settings, and prints the accuracy of the student, and of the
boosted network if there is one, on all, old and new classes. It also prints the constant that, subtracted from all new
logits, would give the best accuracy, and that accuracy: this separates what a student has learned from its bias towards
new classes. `--also RUN` adds other teachers.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foster import events
from foster.data.task import Task
from foster.errors import FosterError, SettingsError
from foster.experiment.folder import SETTINGS, RunFolder
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import Stopped, StopRequest
from foster.training.phase import Evaluate

COLUMNS = ("accuracy", "old_accuracy", "new_accuracy", "best_shift", "best_accuracy")
SHIFTS = torch.arange(-40, 41) / 10
MAY_CHANGE = ("foster.", "data=", "device=", "engine.")
"""The settings that may change. Others would change the data on which the teacher was trained."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_parser = commands.add_parser("prepare", help="run FOSTER until the teacher of a task is trained")
    prepare_parser.add_argument("run", type=Path, metavar="RUN")
    prepare_parser.add_argument("preset")
    prepare_parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    prepare_parser.add_argument("--task", type=int, default=0, help="which task, from 1 on; the last one by default")
    try_parser = commands.add_parser("try", help="train its students, in one way after the other")
    try_parser.add_argument("run", type=Path, metavar="RUN")
    try_parser.add_argument("tries", nargs="+", metavar="'KEY=VALUE ...'")
    try_parser.add_argument("--also", type=Path, action="append", default=[], metavar="RUN", help="another teacher")
    try_parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    try_parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    for each in (prepare_parser, try_parser):
        each.add_argument("--data", help="the folder of the data files")
    one_parser = commands.add_parser("one")  # a process of its own for each student
    one_parser.add_argument("run", type=Path)
    one_parser.add_argument("overrides", nargs="*")
    given = parser.parse_args()
    try:
        if given.command == "prepare":
            prepare(load_settings(given.preset, given.overrides, data=given.data), given.run, given.task)
        elif given.command == "one":
            print(json.dumps(tried(given.run, given.overrides)))
        else:
            more = [f"data={given.data}"] if given.data else []
            tell([given.run, *given.also], given.tries, given.jobs, more, given.out)
    except FosterError as error:
        sys.exit(str(error))


def prepare(settings: Settings, path: Path, number: int) -> None:
    """A run that is stopped before the last phase of a task."""
    tasks = make_plan(settings).tasks
    if not 0 <= number <= len(tasks):
        raise SettingsError(f"--task {number}: the scenario has {len(tasks)} tasks")
    index = (number or len(tasks)) - 1
    *teachers, _ = [phase for phase, _, _ in tasks[index].phases]
    if not teachers:
        raise SettingsError(f"--task {index + 1} has no student")
    stop = StopRequest()

    def listen(event: events.Event) -> None:
        if isinstance(event, events.PhaseEnded) and (event.task, event.phase) == (index, teachers[-1]):
            stop.set()
        if isinstance(event, events.Evaluated):
            print(f"{path.name}: task {event.task + 1} {event.variant}: {event.accuracy:.2f}", flush=True)

    folder = RunFolder(path)
    try:
        with folder.opened(None if folder.holds_run else settings):
            Experiment(settings, folder, listen, stop).run()
    except Stopped:
        print(f"ready: {path}")


class Student(Experiment):
    """A run that continues with changed settings to the end of its current task."""

    found: dict[str, dict[str, float]]

    def _check_same_run(self, state: Mapping[str, Any]) -> None:
        self.found = {}

    def _evaluate(self, wanted: Evaluate, task: Task) -> None:
        super()._evaluate(wanted, task)
        test = self.scenario.test_up_to(task.index)
        logits = self.engine.infer(wanted.network, test.stack).logits
        self.found[wanted.variant] = measured(logits, test.labels.to(logits.device), task.num_known)


def measured(logits: Tensor, labels: Tensor, num_known: int) -> dict[str, float]:
    """The accuracies of logits `[N, C]`; the shift needs known and new classes."""
    is_new = torch.arange(logits.shape[1], device=logits.device) >= num_known

    def percent(right: Tensor) -> float:
        return 100 * float(right.float().mean()) if len(right) else float("nan")

    right = logits.argmax(1) == labels
    by_shift = [percent((logits - shift * is_new).argmax(1) == labels) for shift in SHIFTS.tolist()]
    best = max(range(len(SHIFTS)), key=lambda index: (by_shift[index], -abs(float(SHIFTS[index]))))
    return {
        "accuracy": percent(right),
        "old_accuracy": percent(right[labels < num_known]),
        "new_accuracy": percent(right[labels >= num_known]),
        "best_shift": float(SHIFTS[best]),
        "best_accuracy": by_shift[best],
    }


def tried(path: Path, overrides: Sequence[str]) -> dict[str, dict[str, float]]:
    """The evaluations of student and teacher for one set of settings."""
    for override in overrides:
        if not override.startswith(MAY_CHANGE):
            raise SettingsError(f"{override}: a try may set {', '.join(MAY_CHANGE)} and no more")
    settings, stop = load_settings(str(path / SETTINGS), overrides), StopRequest()

    def listen(event: events.Event) -> None:
        if isinstance(event, events.TaskEnded):
            stop.set()

    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy) / "run"
        shutil.copytree(path, target)
        folder = RunFolder(target)
        with folder.opened():
            student = Student(settings, folder, listen, stop)
            with suppress(Stopped):
                student.run()
    return dict(reversed(student.found.items()))


def tell(runs: Sequence[Path], tries: Sequence[str], jobs: int, more: Sequence[str], out: Path | None) -> None:
    """All settings with every teacher; each result is printed when it is there."""
    rows: dict[str, dict[str, dict[str, float]]] = {}

    def one(job: tuple[str, Path]) -> None:
        changes, path = job
        command = [sys.executable, __file__, "one", str(path), *changes.split(), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        name = changes or "as it is"
        if len(runs) > 1:
            name = f"{path.name}: {name}"
        if done.returncode:
            print(f"{name}: {done.stderr.strip()[-300:]}", flush=True)
            return
        rows[name] = found = json.loads(done.stdout.splitlines()[-1])
        numbers = "   ".join(line_of(variant, values) for variant, values in found.items())
        print(f"{name:<60} {numbers}", flush=True)
        if out:
            out.write_text(json.dumps(rows, indent=1) + "\n")

    print(f"{'':<60} all / old / new classes (at best, with that taken from new logits)")
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [(changes, path) for changes in tries for path in runs]))


def line_of(variant: str, values: Mapping[str, float]) -> str:
    accuracy, old, new, shift, best = (values[name] for name in COLUMNS)
    return f"{variant} {accuracy:.2f} / {old:.2f} / {new:.2f} ({best:.2f}, {shift:+.1f})"


if __name__ == "__main__":
    main()
