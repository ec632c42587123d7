"""Many students of one teacher: how a task of FOSTER is compressed best, without boosting it again for every try.

    python benchmarks/students.py prepare RUN cifar100-b0-inc10 validation_share=0.1 order_seed=7 --data data
    python benchmarks/students.py try RUN --data data --jobs 6 --out tries.json \\
        "" "foster.temperature=4" "foster.compress.epochs=780 foster.compress_cutmix=0.5"

`prepare` runs FOSTER until the last task is boosted and stops there. `try` compresses what stands there, once for each
string of settings, and tells the accuracy of the student and of its teacher on all classes, on old and on new ones.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from foster import events
from foster.errors import FosterError
from foster.experiment.folder import SETTINGS, RunFolder
from foster.experiment.run import Experiment
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import Stopped, StopRequest

COLUMNS = ("accuracy", "old_accuracy", "new_accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_parser = commands.add_parser("prepare", help="run FOSTER until the last task is boosted")
    prepare_parser.add_argument("run", type=Path, metavar="RUN")
    prepare_parser.add_argument("preset")
    prepare_parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    try_parser = commands.add_parser("try", help="compress it, in one way after the other")
    try_parser.add_argument("run", type=Path, metavar="RUN")
    try_parser.add_argument("tries", nargs="+", metavar="'KEY=VALUE ...'")
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
            prepare(load_settings(given.preset, given.overrides, data=given.data), given.run)
        elif given.command == "one":
            print(json.dumps(compressed(given.run, given.overrides)))
        else:
            tell(given.run, given.tries, given.jobs, [f"data={given.data}"] if given.data else [], given.out)
    except FosterError as error:
        sys.exit(str(error))


def prepare(settings: Settings, path: Path) -> None:
    """A run whose last task is boosted, and no more."""
    last = len(settings.task_sizes) - 1
    branches = settings.options.model_dump()["boost_branches"]
    stop = StopRequest()

    def listen(event: events.Event) -> None:
        if isinstance(event, events.PhaseEnded) and event.task == last:
            is_last = event.phase == ("boost" if branches == 1 else f"boost-{branches}")
            if is_last:
                stop.set()
        if isinstance(event, events.Evaluated):
            print(f"task {event.task + 1} {event.variant}: {event.accuracy:.2f}", flush=True)

    folder = RunFolder(path)
    try:
        with folder.opened(None if folder.holds_run else settings):
            Experiment(settings, folder, listen, stop).run()
    except Stopped:
        print(f"boosted: {path}")


class Student(Experiment):
    """A run that goes on with other settings than it began with."""

    def _check_same_run(self, state: Mapping[str, Any]) -> None:
        pass


def compressed(path: Path, overrides: Sequence[str]) -> dict[str, dict[str, float]]:
    """The last evaluations of student and teacher, for one way to compress."""
    settings = load_settings(str(path / SETTINGS), overrides)
    found: dict[str, dict[str, float]] = {}

    def listen(event: events.Event) -> None:
        if isinstance(event, events.Evaluated):
            found[event.variant] = {name: getattr(event, name) for name in COLUMNS}

    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy) / "run"
        shutil.copytree(path, target)
        folder = RunFolder(target)
        with folder.opened():
            Student(settings, folder, listen, StopRequest()).run()
    return {variant: found[variant] for variant in ("compressed", "boosted")}


def tell(path: Path, tries: Sequence[str], jobs: int, more: Sequence[str], out: Path | None) -> None:
    """All tries, a line each as soon as it is there."""
    rows: dict[str, dict[str, dict[str, float]]] = {}

    def one(changes: str) -> None:
        command = [sys.executable, __file__, "one", str(path), *changes.split(), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{changes}: {done.stderr.strip()[-300:]}", flush=True)
            return
        rows[changes] = found = json.loads(done.stdout.splitlines()[-1])
        numbers = "   ".join(
            f"{variant} " + " / ".join(f"{found[variant][name]:.2f}" for name in COLUMNS) for variant in found
        )
        print(f"{changes or 'as it is':<60} {numbers}", flush=True)
        if out:
            out.write_text(json.dumps(rows, indent=1) + "\n")

    print(f"{'':<60} all / old / new classes")
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, tries))


if __name__ == "__main__":
    main()
