"""The speed of decoding, augmenting and training on photos of different sizes, with JPEG files that are generated
first.

    python benchmarks/imagenet.py --folder /tmp/photos --out imagenet.json       # on a GPU: 33,000 photos, 3 tasks
    python benchmarks/imagenet.py --folder /tmp/photos --part decode,augment     # some parts alone

Parts: make (JPEGs of 300 to 500 pixels), decode (photos a second, on all cores), augment (milliseconds a batch), foster
and wa (whole runs of three tasks: images a second of each phase, compared with those of the same steps on prepared
images without augmentation). Every second of a task is counted in one part; the result also has an estimate for the
preset's number of epochs. The numbers are written after every part.
"""

import argparse
import gc
import io
import json
import os
import shutil
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from foster import events
from foster.data.feed import make_feed
from foster.data.imagenet import own_photos
from foster.data.images import ImageSet
from foster.data.photos.decode import _simplejpeg
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import PhotoLoader
from foster.data.task import Task
from foster.experiment.engine import build_engine
from foster.experiment.folder import RunFolder
from foster.experiment.plan import _seconds_a_step, make_plan
from foster.experiment.run import begin
from foster.seeding import Address, generator
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.datasets import PhotoSettings
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import StopRequest
from foster.training.engine import find_device
from foster.training.phase import Phase

PARTS = ("make", "decode", "augment", "foster", "wa")
NUM_TEST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the photos and the runs go")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--part", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--classes", type=int, default=60)
    parser.add_argument("--per-class", type=int, default=550)
    parser.add_argument("--sides", type=int, nargs=2, default=(300, 501), help="the sides of the photos lie between")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--epochs-scale", type=float, default=0.05, help="of FOSTER; WA has two fifths of it")
    parser.add_argument("--set", nargs="*", default=[], help="more settings, KEY=VALUE")
    arguments = parser.parse_args()
    wanted = arguments.part.split(",")
    data = arguments.folder / "photos"
    numbers: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "decoder": "simplejpeg" if _simplejpeg() else "Pillow",
    }
    for name in PARTS:
        if name in wanted:
            numbers[name] = globals()[f"measure_{name}"](arguments, data)
            print(name, json.dumps(numbers[name], indent=1), flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(numbers, indent=1) + "\n")


def measure_make(arguments: argparse.Namespace, data: Path) -> dict[str, float]:
    """Generate the photos, unless they exist."""
    began = time.monotonic()
    shutil.rmtree(data, ignore_errors=True)
    make = partial(make_class, data, arguments.per_class, tuple(arguments.sides))
    with ProcessPoolExecutor() as pool:
        num_bytes = sum(pool.map(make, range(arguments.classes)))
    return {
        "photos": arguments.classes * (arguments.per_class + NUM_TEST),
        "gigabytes": num_bytes / 1e9,
        "seconds": time.monotonic() - began,
    }


def make_class(data: Path, per_class: int, sides: tuple[int, int], class_id: int) -> int:
    """The training and test photos of one class, a coarse pattern with finer noise; returns their bytes."""
    pattern = np.random.default_rng(class_id).integers(0, 256, (5, 5, 3))
    num_bytes = 0
    for part, count in (("train", per_class), ("test", NUM_TEST)):
        folder = data / part / f"class {class_id:03d}"
        folder.mkdir(parents=True)
        for number in range(count):
            chance = np.random.default_rng((class_id, number, part == "test"))
            width, height = (int(side) for side in chance.integers(*sides, 2))
            coarse = np.clip(pattern + chance.normal(0, 40, pattern.shape), 0, 255).astype(np.uint8)
            image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
            fine = chance.integers(-24, 25, (height // 2, width // 2, 3))
            grain = np.asarray(Image.fromarray((fine + 128).astype(np.uint8)).resize((width, height))).astype(np.int16)
            image = Image.fromarray(np.clip(np.asarray(image).astype(np.int16) + grain - 128, 0, 255).astype(np.uint8))
            target = io.BytesIO()
            image.save(target, "JPEG", quality=90)
            num_bytes += len(target.getvalue())
            (folder / f"{number:05d}.JPEG").write_bytes(target.getvalue())
    return num_bytes


def training_set(arguments: argparse.Namespace, data: Path, num_photos: int) -> ImageSet:
    """Some of the training photos, not decoded yet."""
    photos = PhotoSettings(image_size=arguments.image_size)
    device = find_device("auto")
    train, _ = own_photos(data, photos.test_share, seed=0)
    files = [path for paths in train.values() for path in paths]
    labels = torch.arange(len(train)).repeat_interleave(torch.tensor([len(paths) for paths in train.values()]))
    chosen = np.random.default_rng(0).permutation(len(files))[:num_photos]
    loader = PhotoLoader(arguments.image_size, photos.kept_side, device)
    stack = PhotoStack.of([files[k] for k in chosen.tolist()], loader)
    return ImageSet(stack, labels[torch.from_numpy(chosen)], tuple(f"class {k}" for k in range(arguments.classes)))


def measure_decode(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Photos a second from files to decoded pixels, on all cores."""
    images = training_set(arguments, data, 8_000)
    began = time.monotonic()
    images.stack.is_readable()
    seconds = time.monotonic() - began
    return {"photos": len(images), "seconds": seconds, "photos_a_second": len(images) / seconds}


def measure_augment(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Milliseconds of a batch: only cut and resized, and with the whole augmentation of the presets; and the time of
    the host for the launches, and for finding the photos before that."""
    images = training_set(arguments, data, 2 * arguments.batch_size)
    device = find_device("auto")
    crop_alone = Augmentation(resized_crop=(0.08, 1.0), flip=True)
    found: dict[str, Any] = {}
    for name, augmentation in (
        ("crop", crop_alone),
        ("imagenet", AUGMENTATIONS["imagenet"]),
        ("photo_auto", AUGMENTATIONS["photo-auto"]),
    ):
        feed = make_feed(images, augmentation, arguments.batch_size, Address(1, "feed"), device)
        random = generator(feed.address(0))
        gather = images.stack.epoch(feed._order(random), augmentation, random)
        part = slice(0, min(arguments.batch_size, feed.num_images))
        timings: dict[str, list[float]] = {"gather": [], "host": [], "": []}
        for _ in range(8):
            began = time.perf_counter()
            send = gather(part, device)
            timings["gather"].append(time.perf_counter() - began)
            began = time.perf_counter()
            send()
            timings["host"].append(time.perf_counter() - began)
            if device.type == "cuda":
                torch.cuda.synchronize()
            timings[""].append(time.perf_counter() - began)
        for kind, seconds in timings.items():
            found["_".join(filter(None, (name, kind, "ms")))] = 1e3 * statistics.median(seconds)
    return found


def settings_of(arguments: argparse.Namespace, data: Path, method: str, scale: float, *more: str) -> Settings:
    num_new = arguments.classes // 3
    overrides = [
        "dataset=folder",
        f"method={method}",
        f"base_classes={num_new}",
        f"increment={num_new}",
        f"photos.image_size={arguments.image_size}",
        f"photos.short_side={round(arguments.image_size * 8 / 7)}",
        f"backbone={arguments.backbone}",
        f"batch_size={arguments.batch_size}",
        f"memory_total={min(2000, 20 * arguments.classes)}",
        f"epochs_scale={scale}",
        "checkpoint_minutes=60",
        *arguments.set,
        *more,
    ]
    return load_settings("imagenet100-b0-inc10", overrides, data=str(data))


def measure_foster(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    return measured_run(arguments, data, "foster", arguments.epochs_scale)


def measure_wa(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    return measured_run(arguments, data, "wa", 0.4 * arguments.epochs_scale)


@dataclass
class Log:
    """The events of a run with the time of each, but for those of progress."""

    heard: list[tuple[float, events.Event]] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.Decoding):
            self.heard.append((time.monotonic(), event))

    @property
    def told(self) -> list[events.Event]:
        return [event for _, event in self.heard]

    def of_tasks(self) -> list[tuple[float, list[events.Event]]]:
        """The seconds and the events of each task, from the end of the one before it."""
        ends = [k for k, event in enumerate(self.told) if isinstance(event, events.TaskEnded)]
        starts = [0, *(end + 1 for end in ends)]
        return [
            (self.heard[end][0] - self.heard[max(0, start - 1)][0], self.told[start : end + 1])
            for start, end in zip(starts, ends, strict=False)
        ]


def measured_run(arguments: argparse.Namespace, data: Path, method: str, scale: float) -> dict[str, Any]:
    """A run of three tasks: images a second of each phase's epochs and of each task as a whole."""
    settings = settings_of(arguments, data, method, scale)
    path = arguments.folder / f"run-{method}"
    shutil.rmtree(path, ignore_errors=True)
    alone = steps_alone(settings_of(arguments, data, method, scale, "augmentation=none"))
    plan = make_plan(settings)
    if torch.cuda.is_available():  # the peak is that of the run, and not of what was measured before it
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    log, folder = Log(), RunFolder(path)
    begin(settings, folder, log, StopRequest())
    seconds = time.monotonic() - began
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {
        "seconds": seconds,
        "accuracy": folder.read_results()["accuracy"],
        "phases": phase_rates(log.told, alone),
        "tasks": task_rates(log, alone, 1 / scale),
        "decoded": [
            {"what": event.what, "photos": event.num_photos, "seconds": event.seconds, "place": event.place}
            for event in log.told
            if isinstance(event, events.PhotosDecoded)
        ],
        "planned_bytes": plan.training_bytes,
        "peak_bytes": peak,
        "planned_over_peak": plan.training_bytes / peak if peak else None,
    }


def steps_alone(settings: Settings) -> dict[str, float]:
    """Images a second of the steps of each phase, in the first two tasks, on prepared noise."""
    facts = settings.facts
    engine = build_engine(settings.engine, settings.device, facts.mean, facts.std)
    rates: dict[str, float] = {}

    def look_at(task: Task, phase: Phase) -> None:
        if task.index < 2:
            seconds = _seconds_a_step(phase, task.index, settings, engine, facts.image_size)
            rates[f"{phase.name} of task {task.index + 1}"] = settings.batch_size / seconds

    make_plan(settings, look_at, engine.device)
    return rates


def phase_rates(heard: list[events.Event], alone: dict[str, float]) -> list[dict[str, Any]]:
    """Images a second of each phase, without its first epoch, which includes the recording of the step."""
    sizes = {event.task: event.num_images for event in heard if isinstance(event, events.TaskStarted)}
    epochs: dict[tuple[int, str], list[float]] = {}
    for event in heard:
        if isinstance(event, events.EpochEnded):
            epochs.setdefault((event.task, event.phase), []).append(event.seconds)
    found = []
    for (task, phase), seconds in epochs.items():
        usual = statistics.median(seconds[1:] or seconds)
        rate, of_steps = sizes[task] / usual, alone[f"{phase} of task {min(task, 1) + 1}"]
        found.append(
            {
                "task": task + 1,
                "phase": phase,
                "epochs": len(seconds),
                "epoch_s": usual,
                "first_epoch_s": seconds[0],
                "images_a_second": rate,
                "steps_alone_images_a_second": of_steps,
                "share_of_steps_alone": rate / of_steps,
            }
        )
    return found


def task_rates(log: Log, alone: dict[str, float], stretch: float) -> list[dict[str, Any]]:
    """The seconds of each part of each task, and the share of the steps in the time of the task: measured, and
    estimated for the preset's number of epochs. The time of epochs above their median is a part of its own; `other`
    is the rest of the time: evaluation and exemplars."""
    found = []
    for task, (whole, heard) in enumerate(log.of_tasks(), start=1):
        phases = [phase for phase in phase_rates(log.told, alone) if phase["task"] == task]
        epochs = sum(phase["epochs"] * phase["epoch_s"] for phase in phases)
        steps = sum(phase["epochs"] * phase["epoch_s"] * phase["share_of_steps_alone"] for phase in phases)
        beside = max(0.0, whole - epochs)
        parts = {
            "epochs": epochs,
            "phases beside their usual epochs": seconds_of(heard, events.PhaseEnded) - epochs,
            "decoding": seconds_of(heard, events.PhotosDecoded),
            "checkpoints": seconds_of(heard, events.CheckpointWritten),
        }
        found.append(
            {
                "seconds": whole,
                "parts_s": parts | {"other": whole - sum(parts.values())},
                "beside_epochs_s": beside,
                "share_of_steps_alone": steps / whole,
                "share_with_the_presets_epochs": stretch * steps / (stretch * epochs + beside),
            }
        )
    return found


def seconds_of(heard: list[events.Event], kind: type[Any]) -> float:
    return sum(event.seconds for event in heard if isinstance(event, kind))


if __name__ == "__main__":
    main()
