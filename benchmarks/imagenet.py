"""How fast photos of many sizes are decoded, changed and trained on, from JPEG files that are made here first.

    python benchmarks/imagenet.py --folder /tmp/photos --out imagenet.json       # on a GPU: 33,000 photos, 3 tasks
    python benchmarks/imagenet.py --folder /tmp/photos --part decode,augment     # some parts alone

Parts: make (JPEGs of 300 to 500 pixels), decode (photos a second over all cores), augment (milliseconds a batch),
foster and wa (whole runs of three tasks, whose events tell the images a second of each phase and of each task, beside
those of the same steps on images that lie ready and are not changed). With the numbers of a task goes what the preset's
own number of epochs would make of it. The numbers are written after every part.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from foster import events
from foster.data.augmentation.pipeline import Augmentation
from foster.data.feed import make_feed
from foster.data.imagenet import trees
from foster.data.images import ImageSet
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.pixels import _simplejpeg
from foster.data.task import Task
from foster.experiment.folder import RunFolder
from foster.experiment.pace import _seconds_a_step
from foster.experiment.parts import build_engine
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment
from foster.seeding import Address
from foster.settings.augmentation import AUGMENTATIONS
from foster.settings.experiment import Settings, load_settings
from foster.settings.photos import PhotoSettings
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
    """Make the photos, unless they are there."""
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
    files, labels = trees("folder", data, photos, 1993)[0].listed()
    chosen = np.random.default_rng(0).permutation(len(files))[:num_photos]
    album = Album.of(files.select(chosen), Darkroom(arguments.image_size, photos.kept_side, device), "the photos")
    return ImageSet(album, labels[torch.from_numpy(chosen)], tuple(f"class {k}" for k in range(arguments.classes)))


def measure_decode(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Photos a second from files to pixels where they are kept, over all cores."""
    images = training_set(arguments, data, 8_000)
    album = images.stack
    assert isinstance(album, Album)
    began = time.monotonic()
    album.developed()
    seconds = time.monotonic() - began
    place = album.darkroom.chosen
    return {"photos": len(images), "seconds": seconds, "photos_a_second": len(images) / seconds, "place": place}


def measure_augment(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Milliseconds of the device for a batch: cut and resized alone, and with all that the presets do to it."""
    images = training_set(arguments, data, 2 * arguments.batch_size)
    device = find_device("auto")
    crop_alone = Augmentation(resized_crop=(0.08, 1.0), flip=True)
    found: dict[str, Any] = {}
    for name, augmentation in (
        ("crop_ms", crop_alone),
        ("imagenet_ms", Augmentation(**dict(AUGMENTATIONS["imagenet"]))),
        ("photo_auto_ms", Augmentation(**dict(AUGMENTATIONS["photo-auto"]))),
    ):
        feed = make_feed(images, augmentation, arguments.batch_size, Address(1, "feed"), device)
        order, changes = feed._drawn(0)
        part = slice(0, min(arguments.batch_size, feed.num_images))
        timings, waits = [], []
        for _ in range(8):
            began = time.perf_counter()
            gathered = feed._gathered(order[part])  # type: ignore[attr-defined]
            waits.append(time.perf_counter() - began)
            began = time.perf_counter()
            feed._sent(gathered, changes, part)  # type: ignore[attr-defined]
            if device.type == "cuda":
                torch.cuda.synchronize()
            timings.append(time.perf_counter() - began)
        found[name] = 1e3 * statistics.median(timings)
        found[name.replace("_ms", "_gather_ms")] = 1e3 * statistics.median(waits)
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


def measured_run(arguments: argparse.Namespace, data: Path, method: str, scale: float) -> dict[str, Any]:
    """A run of three tasks: images a second of each phase's epochs and of each task as a whole."""
    settings = settings_of(arguments, data, method, scale)
    path = arguments.folder / f"run-{method}"
    shutil.rmtree(path, ignore_errors=True)
    heard: list[tuple[float, events.Event]] = []

    def listen(event: events.Event) -> None:
        if not isinstance(event, events.Decoding):
            heard.append((time.monotonic(), event))

    alone = steps_alone(settings_of(arguments, data, method, scale, "augmentation=none"))
    plan = make_plan(settings)
    if torch.cuda.is_available():  # the peak is that of the run, and not of what was measured before it
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    folder = RunFolder(path)
    with folder.opened(settings):
        results = Experiment(settings, folder, listen, StopRequest()).run()
    seconds = time.monotonic() - began
    peak = results["environment"]["peak_gpu_bytes"]
    return {
        "seconds": seconds,
        "accuracy": results["accuracy"],
        "phases": phase_rates(heard, alone),
        "tasks": task_rates(heard, alone, results["task_seconds"], 1 / scale),
        "decoded": [
            {"what": event.what, "photos_a_second": event.num_photos / event.seconds, "place": event.place}
            for _, event in heard
            if isinstance(event, events.PhotosDecoded) and event.seconds > 0
        ],
        "planned_bytes": plan.training_bytes,
        "peak_bytes": peak,
        "planned_over_peak": plan.training_bytes / peak if peak else None,
    }


def steps_alone(settings: Settings) -> dict[str, float]:
    """Images a second of the steps of each phase, in the first two tasks, on noise that lies ready."""
    facts = settings.facts
    engine = build_engine(settings.engine, settings.device, facts.mean, facts.std)
    rates: dict[str, float] = {}

    def look_at(task: Task, phase: Phase) -> None:
        if task.index < 2:
            seconds = _seconds_a_step(phase, task.index, settings, engine, facts.image_size)
            rates[f"{phase.name} of task {task.index + 1}"] = settings.batch_size / seconds

    make_plan(settings, look_at, engine.device)
    return rates


Heard = list[tuple[float, events.Event]]


def phase_rates(heard: Heard, alone: dict[str, float]) -> list[dict[str, Any]]:
    """Of each phase the images a second of its later epochs: the first waits for what is recorded before it."""
    sizes = {event.task: event.num_images for _, event in heard if isinstance(event, events.TaskStarted)}
    epochs: dict[tuple[int, str], list[float]] = {}
    for _, event in heard:
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


def task_rates(
    heard: Heard, alone: dict[str, float], task_seconds: list[float], stretch: float
) -> list[dict[str, float]]:
    """Of each task what stands beside its epochs, and the share of its time that the steps alone would take: here, and
    with the preset's number of epochs."""
    decoding: dict[int, float] = {}
    for _, event in heard:
        if isinstance(event, events.PhotosDecoded) and event.what.startswith("task"):
            decoding[int(event.what.split()[1])] = event.seconds
    found = []
    for task, seconds in enumerate(task_seconds, start=1):
        phases = [phase for phase in phase_rates(heard, alone) if phase["task"] == task]
        epochs = sum(phase["epochs"] * phase["epoch_s"] for phase in phases)
        steps = sum(phase["epochs"] * phase["epoch_s"] * phase["share_of_steps_alone"] for phase in phases)
        whole = seconds + decoding.get(task, 0.0)
        beside = max(0.0, whole - epochs)
        found.append(
            {
                "seconds": whole,
                "decoding_s": decoding.get(task, 0.0),
                "beside_epochs_s": beside,
                "share_of_steps_alone": steps / whole,
                "share_with_the_presets_epochs": stretch * steps / (stretch * epochs + beside),
            }
        )
    return found


if __name__ == "__main__":
    main()
