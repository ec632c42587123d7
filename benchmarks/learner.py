"""How far a learner that sees each task's photos once is from a run that holds all data: the same scenario, both ways.

    python benchmarks/learner.py --data data                       # CIFAR-100 in ten tasks on a GPU
    python benchmarks/learner.py --data data --epochs-scale 0.1    # shorter, both alike
    python benchmarks/learner.py                                   # random patterns of the same sizes
    python benchmarks/learner.py --tasks 5 engine.kernels=off      # any cut, and any setting for both

Each task's images are written as PNG files, one folder a class, learned by a `foster learn --training paper` in a
process of its own, and deleted; `foster evaluate` then measures the bundle on the test images of all classes seen.
`foster run` learns the same classes in the same order with the same settings, which is checked. On a CPU all is small.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from foster.data.images import ImageSet
from foster.errors import FosterError
from foster.evaluation.metrics import average_incremental_accuracy
from foster.experiment.parts import load_scenario
from foster.experiment.plan import make_plan
from foster.settings.base import flat, keys_for
from foster.settings.experiment import Settings, load_settings
from foster.settings.learner import KEPT_FROM_THE_FIRST_LEARN, LearnerSettings
from foster.settings.toml import packaged_names

SAME_SIZES = ["dataset=synthetic", "synthetic.num_classes=100", "synthetic.train_per_class=500"]
SAME_SIZES += ["synthetic.test_per_class=100", "synthetic.image_size=32"]
SMALL_SIZES = ["dataset=synthetic", "synthetic.train_per_class=20", "synthetic.test_per_class=10"]
SMALL_SIZES += ["synthetic.image_size=16", "memory_total=60", "batch_size=32", "backbone=resnet8"]
SMALL_SIZES += ["augmentation=shift"]
CLASSES_OF_A_SMALL_TASK = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings to change, for both")
    parser.add_argument("--data", help="the folder of CIFAR-100; without it, random patterns stand in")
    parser.add_argument("--epochs-scale", type=float, help="multiplies the epochs of every phase, for both")
    parser.add_argument("--tasks", type=int, help="into how many tasks the classes are cut (10, on a CPU 3)")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_intermixed_args()
    try:
        data = str(Path(given.data).resolve()) if given.data else None
        settings = settings_for(data, given.tasks, given.epochs_scale, given.overrides)
        with tempfile.TemporaryDirectory() as work:
            numbers = compare(settings, Path(work))
    except (FosterError, CommandError) as error:
        sys.exit(str(error))
    print(table(numbers))
    if given.out:
        given.out.write_text(json.dumps(numbers, indent=1) + "\n")


class CommandError(Exception):
    """A command failed; the message is what it said."""


def settings_for(data: str | None, tasks: int | None, epochs_scale: float | None, overrides: list[str]) -> Settings:
    """The settings of the run, from which the learner's are taken."""
    on_gpu = torch.cuda.is_available()
    is_small = not (on_gpu or data)
    num_tasks = tasks or (3 if is_small else 10)
    sizes = [] if data else SAME_SIZES
    if is_small:
        sizes = [*SMALL_SIZES, f"synthetic.num_classes={CLASSES_OF_A_SMALL_TASK * num_tasks}"]
    uncut = ["base_classes=1", "increment=1", "foster.beta_boost=0.95"]
    num_classes = load_settings("cifar100-b0-inc10", [*sizes, *overrides, *uncut]).facts.num_classes
    increment = -(-num_classes // num_tasks)
    preset = f"cifar100-b0-inc{increment}"
    preset = preset if preset in packaged_names("presets") else "cifar100-b0-inc10"
    scale = epochs_scale or (0.05 if is_small else 1.0)
    cut = [f"base_classes={increment}", f"increment={increment}", f"epochs_scale={scale}"]
    return load_settings(preset, [*sizes, *cut, *overrides], data=data)


def compare(settings: Settings, work: Path) -> dict[str, Any]:
    (work / "settings.toml").write_text(settings.toml())
    learner, run = learn_all(settings, work), run_all(work)
    check_same(settings, learner.pop("manifest"), run.pop("settings"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "scenario": settings.scenario,
        "method": settings.method,
        "epochs_scale": settings.epochs_scale,
        "seed": settings.seed,
        "environment": run.pop("environment"),
        "learner": learner,
        "run": run,
        "difference_final": learner["accuracy"][-1] - run["accuracy"][-1],
        "difference_average": learner["average_incremental_accuracy"] - run["average_incremental_accuracy"],
    }


def learn_all(settings: Settings, work: Path) -> dict[str, Any]:
    """One process a task, each task's photos deleted once they are learned; and one that measures, after each."""
    scenario = load_scenario(settings)
    test = work / "test"
    write_photos(scenario.test_up_to(len(scenario) - 1), test)
    old, accuracies, seconds = None, [], []
    for task in scenario:
        bundle, photos = work / f"bundle{task.index + 1:02d}", work / f"task{task.index + 1:02d}"
        write_photos(task.new_images, photos)
        began = time.perf_counter()
        origin = ["--from", str(old)] if old else []
        given = learner_overrides(settings, is_first=old is None)
        foster("learn", str(photos), "--bundle", str(bundle), *origin, "--training", "paper", "--quiet", *given)
        seconds.append(time.perf_counter() - began)
        shutil.rmtree(photos)
        measured = json.loads(foster("evaluate", str(bundle), str(test), "--json", "--device", settings.device))
        accuracies.append(measured["accuracy"])
        print(f"learner: task {task.index + 1}, {accuracies[-1]:.2f} %, {seconds[-1]:.0f} s", flush=True)
        old = bundle
    return {
        "accuracy": accuracies,
        "average_incremental_accuracy": average_incremental_accuracy(accuracies),
        "task_seconds": seconds,
        "manifest": json.loads(foster("info", str(old), "--json")),
    }


def learner_overrides(settings: Settings, is_first: bool) -> list[str]:
    """All settings of the run that a learner has, too; what the first learn decides for good is said to it alone."""
    known = set(keys_for(LearnerSettings)) - (set() if is_first else set(KEPT_FROM_THE_FIRST_LEARN))
    values: dict[str, Any] = {"learning_rate_scale": 1}  # a learner's rates would follow from its batches
    values |= {key: value for key, value in flat(settings.nested()).items() if key in known and value is not None}
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()]


def run_all(work: Path) -> dict[str, Any]:
    began = time.perf_counter()
    foster("run", str(work / "settings.toml"), "--out", str(work / "run"), "--quiet")
    results = json.loads((work / "run" / "results.json").read_text())
    print(f"run: {results['final_accuracy']:.2f} % after all tasks, {time.perf_counter() - began:.0f} s", flush=True)
    kept = ("accuracy", "average_incremental_accuracy", "task_seconds", "settings", "environment")
    return {key: results[key] for key in kept} | {"seconds": time.perf_counter() - began}


def write_photos(images: ImageSet, folder: Path) -> None:
    """PNG files, one folder a class. A class's name begins with its id, so that both learn them in the same order."""
    labels, counts = images.labels.tolist(), dict.fromkeys(images.labels.tolist(), 0)
    for label in counts:
        (folder / f"{label:03d} {images.class_names[label]}").mkdir(parents=True)
    for image, label in zip(images.images, labels, strict=True):
        path = folder / f"{label:03d} {images.class_names[label]}" / f"{counts[label]:05d}.png"
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path, compress_level=1)
        counts[label] += 1


def foster(*arguments: str) -> str:
    """What the command prints; CommandError with what it complains about where it fails."""
    found = subprocess.run([sys.executable, "-m", "foster", *arguments], capture_output=True, text=True)
    if found.returncode:
        raise CommandError(f"foster {' '.join(arguments[:2])} ...: {(found.stderr or found.stdout).strip()[-2000:]}")
    return found.stdout


def check_same(settings: Settings, manifest: Mapping[str, Any], ran: Mapping[str, Any]) -> None:
    """Refuse to compare what was not learned alike: settings, epochs of every phase, batch size, number of images."""
    of_run, of_learner = flat(ran), flat(manifest["settings"])
    differences = [
        f"{key}: {of_learner[key]!r} and {of_run[key]!r}"
        for key in sorted(of_run.keys() & of_learner.keys() - {"backbone"})
        if of_learner[key] != of_run[key]
    ]
    plan = make_plan(settings)
    for task, entry in zip(plan.tasks, manifest["history"], strict=True):
        facts = {
            "epochs": {name: epochs for name, epochs, _ in task.phases},
            "batch_size": settings.batch_size,
            "trained_images": task.new_images,
            "held_out_images": 0,
        }
        differences += [
            f"{key} in task {task.index + 1}: {entry[key]} and {expected}"
            for key, expected in facts.items()
            if entry[key] != expected
        ]
    if differences:
        raise CommandError(f"learner and run did not do the same: {'; '.join(differences)}")


def table(numbers: Mapping[str, Any]) -> str:
    learner, run, environment = numbers["learner"], numbers["run"], numbers["environment"]
    where = f"{environment['device']}, torch {environment['torch']}, {environment['precision']}"
    what = f"{numbers['method']} on {numbers['scenario']}, epochs x {numbers['epochs_scale']:g}"
    lines = [
        f"{what}, seed {numbers['seed']}: {where}",
        f"{'accuracy, %':<24}{'learner':>10}{'run':>10}{'difference':>12}",
    ]
    rows = [
        (f"after task {k}", *pair)
        for k, pair in enumerate(zip(learner["accuracy"], run["accuracy"], strict=True), start=1)
    ]
    key = "average_incremental_accuracy"
    for name, first, second in [*rows, ("average incremental", learner[key], run[key])]:
        lines.append(f"{name:<24}{first:>10.2f}{second:>10.2f}{first - second:>+12.2f}")
    lines.append(f"{'seconds':<24}{sum(learner['task_seconds']):>10.0f}{run['seconds']:>10.0f}")
    lines.append(
        f"after the last task: learner {learner['accuracy'][-1]:.2f} %, run {run['accuracy'][-1]:.2f} %, "
        f"difference {numbers['difference_final']:+.2f} points"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
