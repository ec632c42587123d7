"""How long a whole B0 inc10 run takes, by part.

    python benchmarks/run.py --data data             # CIFAR-100 on a GPU
    python benchmarks/run.py                         # random patterns of the same sizes
    python benchmarks/run.py --epochs-scale 0.05     # shorter; the time of the whole run is estimated
    python benchmarks/run.py --cold                  # with an empty compile cache
    python benchmarks/run.py engine.kernels=off      # any setting

On a CPU the same parts are measured at a small size. The cache of compiled code is torch's own: the folder in
$TORCHINDUCTOR_CACHE_DIR and $TRITON_CACHE_DIR, or those that torch chooses.

Every second belongs to exactly one part. On a GPU the augmentation is none of them: it runs in a stream of its own,
beside the steps. Its time there, by events in that stream, stands below the total and is not part of it; where it holds
up the steps, that is in their time. It includes what the stream waits for the host and for the steps, which use the
device, too; but not the drawing of random choices on the host, the shuffling, or the transfer of streamed images.
"""

import time

BEGAN = time.perf_counter()

# ruff: noqa: E402  (importing torch takes seconds, which belong to the whole)
import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foster.data.augmentation.pipeline import Changes
from foster.data.task import Task
from foster.errors import FosterError
from foster.events import Event, PhaseStarted
from foster.experiment.folder import RunFolder
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import StopRequest
from foster.training import fit as fit_module
from foster.training.phase import Evaluate, Phase
from foster.training.task import Trainer

SAME_SIZES = ["dataset=synthetic", "synthetic.num_classes=100", "synthetic.train_per_class=500"]
SAME_SIZES += ["synthetic.test_per_class=100", "synthetic.image_size=32"]
SMALL_SIZES = ["dataset=synthetic", "synthetic.num_classes=10", "synthetic.train_per_class=20", "increment=2"]
SMALL_SIZES += ["synthetic.test_per_class=10", "synthetic.image_size=8", "base_classes=2", "memory_total=40"]
SMALL_SIZES += ["batch_size=32", "foster.beta_boost=0.95", "augmentation=auto", "augmentation.cutout=4"]
STEPS, AUGMENTATION, RECORDING, IMPORTS = "steps: ", "augmentation", "compile and record", "imports"
GROWS_WITH_EPOCHS = (STEPS, AUGMENTATION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings to change")
    parser.add_argument("--data", help="the folder of CIFAR-100; without it, random patterns stand in")
    parser.add_argument("--epochs-scale", type=float, help="multiplies the epochs of every phase")
    parser.add_argument("--cold", action="store_true", help="start with an empty compile cache")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        if given.cold:
            # Compilers look here when they compile first, which is later than now.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/inductor"
            os.environ["TRITON_CACHE_DIR"] = f"{scratch}/triton"
        try:
            numbers = measure(settings_for(given.data, given.epochs_scale, given.overrides), Path(scratch) / "run")
        except FosterError as error:
            sys.exit(str(error))
    numbers["is_cold"] = given.cold
    print(table(numbers))
    if given.out:
        given.out.write_text(json.dumps(numbers, indent=1) + "\n")


def settings_for(data: str | None, epochs_scale: float | None, overrides: list[str]) -> Settings:
    on_gpu = torch.cuda.is_available()
    sizes = ([] if data else SAME_SIZES if on_gpu else SMALL_SIZES) + overrides
    scale = epochs_scale or (1.0 if on_gpu else 0.02)
    return load_settings("cifar100-b0-inc10", [*sizes, f"epochs_scale={scale}"], data=data)


class Stopwatch:
    """Gives every second to one part: while an inner part is measured, the outer one stands still.

    The device is waited for only where a part begins or ends. There its peaks of memory are taken, too: what tensors
    took, and what torch had reserved for them, which other processes miss.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.seconds_beside: dict[str, float] = defaultdict(float)
        self.peak_bytes: dict[str, int] = defaultdict(int)
        self.peak_reserved_bytes: dict[str, int] = defaultdict(int)
        self._timed_beside: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._parts = ["other"]
        self._last = time.perf_counter()
        self.seconds[IMPORTS] = self._last - BEGAN

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._charge()
        self._parts.append(name)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    @contextmanager
    def beside(self, name: str) -> Iterator[None]:
        """Inside, what is launched in the current stream is timed there, by events: no part stands still for it, and
        nobody waits."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._timed_beside.append((name, begin, end))

    def _charge(self) -> None:
        part = self._parts[-1]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.peak_bytes[part] = max(self.peak_bytes[part], torch.cuda.max_memory_allocated())
            self.peak_reserved_bytes[part] = max(self.peak_reserved_bytes[part], torch.cuda.max_memory_reserved())
            torch.cuda.reset_peak_memory_stats()
            for name, begin, end in self._timed_beside:
                self.seconds_beside[name] += begin.elapsed_time(end) / 1e3
            self._timed_beside.clear()
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now

    def stop(self) -> None:
        self._charge()


class TimedExperiment(Experiment):
    """An experiment that tells a stopwatch what it does."""

    def __init__(self, settings: Settings, folder: RunFolder, watch: Stopwatch) -> None:
        self._watch = watch
        self.num_steps: Counter[str] = Counter()
        with watch.part("data and assembly"):
            super().__init__(settings, folder, self._count, StopRequest())
        choose = self.method.remember

        def remember(*arguments: Any) -> None:
            with watch.part("choosing exemplars"):
                choose(*arguments)

        self.method.remember = remember  # type: ignore[assignment,method-assign]

    def save(self, *arguments: Any, **named: Any) -> None:
        with self._watch.part("checkpoints"):
            super().save(*arguments, **named)

    def _evaluate(self, wanted: Evaluate, task: Task) -> None:
        with self._watch.part("evaluation"):
            super()._evaluate(wanted, task)

    def _count(self, event: Event) -> None:
        if isinstance(event, PhaseStarted):
            self.num_steps[STEPS + event.phase] += event.epochs * event.steps


@contextmanager
def timed_phases(watch: Stopwatch) -> Iterator[None]:
    """Inside, every phase is a part of its own."""
    original = Trainer.train

    def train(trainer: Trainer, phase: Phase, *arguments: Any) -> None:
        with watch.part(STEPS + phase.name):
            original(trainer, phase, *arguments)

    Trainer.train = train  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Trainer.train = original  # type: ignore[method-assign]


@contextmanager
def timed_recording(watch: Stopwatch) -> Iterator[None]:
    """Inside, what a phase does before its first step is a part of its own."""
    original = fit_module.ready_step

    @contextmanager
    def ready_step(*arguments: Any) -> Iterator[Any]:
        with ExitStack() as stack:
            with watch.part(RECORDING):
                step = stack.enter_context(original(*arguments))
            yield step

    fit_module.ready_step = ready_step  # type: ignore[assignment]
    try:
        yield
    finally:
        fit_module.ready_step = original


@contextmanager
def timed_augmentation(watch: Stopwatch) -> Iterator[None]:
    """Inside, the augmentation of every feed is timed: on a GPU beside the parts, in the stream that it runs in; on a
    CPU, where everything else stands still meanwhile, as a part."""
    original = Changes.done_to

    def done_to(changes: Changes, images: Tensor, part: slice) -> Tensor:
        with (watch.beside if images.is_cuda else watch.part)(AUGMENTATION):
            return original(changes, images, part)

    Changes.done_to = done_to  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Changes.done_to = original  # type: ignore[method-assign]


def measure(settings: Settings, path: Path) -> dict[str, Any]:
    """One run in the folder `path`, and where its time went."""
    watch = Stopwatch()
    folder = RunFolder(path)
    experiment = TimedExperiment(settings, folder, watch)
    with folder.opened(settings), timed_phases(watch), timed_recording(watch), timed_augmentation(watch):
        results = experiment.run()
    watch.stop()
    fixed = {name: value for name, value in watch.seconds.items() if not name.startswith(GROWS_WITH_EPOCHS)}
    growing = sum(watch.seconds.values()) - sum(fixed.values())
    num_steps_of_all = make_plan(settings.model_copy(update={"epochs_scale": 1.0})).total_steps
    return {
        "date": time.strftime("%Y-%m-%d"),
        "scenario": results["scenario"],
        "method": settings.method,
        "environment": results["environment"],
        "engine": settings.engine.model_dump(),
        "epochs_scale": settings.epochs_scale,
        "num_tasks": len(results["tasks"]),
        "parts_s": dict(watch.seconds),
        "beside_s": dict(watch.seconds_beside),
        "peak_bytes": dict(watch.peak_bytes),
        "peak_reserved_bytes": dict(watch.peak_reserved_bytes),
        "steps": dict(experiment.num_steps),
        "total_s": sum(watch.seconds.values()),
        "estimated_whole_s": sum(fixed.values()) + growing * num_steps_of_all / sum(experiment.num_steps.values()),
        "average_incremental_accuracy": results["average_incremental_accuracy"],
    }


def table(numbers: dict[str, Any]) -> str:
    environment, total = numbers["environment"], numbers["total_s"]
    lines = [
        f"{numbers['method']} on {numbers['scenario']}, epochs x {numbers['epochs_scale']:g}: "
        f"{environment['device']}, torch {environment['torch']}, {environment['precision']}, "
        + ", ".join(f"{name} {'on' if environment[name] else 'off'}" for name in ("capture", "compile", "kernels"))
        + (", empty compile cache" if numbers["is_cold"] else ""),
        f"{'part':<24}{'seconds':>10}{'share':>8}{'peak MB':>10}{'reserved':>10}   each",
    ]
    for name, seconds in sorted(numbers["parts_s"].items(), key=lambda item: -item[1]):
        steps = numbers["steps"].get(name)
        each = f"{1e3 * seconds / steps:.3f} ms a step, {steps} steps" if steps else ""
        if name in ("evaluation", "choosing exemplars", RECORDING):
            each = f"{seconds / numbers['num_tasks']:.3f} s a task"
        peaks = [numbers[kind].get(name, 0) / 1e6 for kind in ("peak_bytes", "peak_reserved_bytes")]
        columns = f"{seconds:>10.2f}{100 * seconds / total:>7.1f}%" + "".join(f"{peak:>10.0f}" for peak in peaks)
        lines.append(f"{name:<24}{columns}   {each}".rstrip())
    lines.append(f"{'all':<24}{total:>10.2f}")
    if numbers["epochs_scale"] != 1:
        lines.append(f"{'with all epochs, about':<24}{numbers['estimated_whole_s']:>10.0f}")
    for name, seconds in numbers["beside_s"].items():
        lines.append(f"{name + ', beside':<24}{seconds:>10.2f}   on the device beside the steps; not part of all")
    if numbers["peak_bytes"]:
        allocated, reserved = (max(numbers[kind].values()) / 1e6 for kind in ("peak_bytes", "peak_reserved_bytes"))
        lines.append(f"peak GPU memory {allocated:.0f} MB, reserved {reserved:.0f} MB")
    lines.append(f"average incremental accuracy {numbers['average_incremental_accuracy']:.2f} %")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
