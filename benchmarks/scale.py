"""Time and memory by the number of classes and images: the list of photos, exemplars, evaluation, results, checkpoints.

    python benchmarks/scale.py --out scale.json       # 100, 1,000 and 10,000 classes; 1, 5 and 14 million photos
    python benchmarks/scale.py --quick                # a hundredth of that

Each row has the time and the memory for each image or class, which must not grow with the size. Memory is the size of
the list of photos, and otherwise the largest increase during the operation (0 if the system does not report it); for
results and checkpoints there is also their size on the disk.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.herding import herding_by_class
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import PhotoLoader
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import class_means, nearest_mean_scores, ranks
from foster.experiment.record import Record
from foster.training.checkpoint import CheckpointStore

CLASSES = (100, 1_000, 10_000)
MILLIONS = (1, 5, 14)
PER_CLASS, FEATURES, QUOTA, SCORED = 60, 64, 20, 200
PARTS = ("herding", "class means", "scores", "metrics", "results", "checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--quick", action="store_true", help="a hundredth of everything")
    arguments = parser.parse_args()
    scale = 100 if arguments.quick else 1
    numbers: dict[str, Any] = {"index": [], "classes": []}
    # The classes first: what a list of photos leaves behind would be taken again, and nothing grow.
    print("each class: us, and KiB of memory at the peak; KiB on the disk")
    print(f"{'classes':>12}" + "".join(f"{name:>20}" for name in PARTS) + f"{'on the disk':>20}")
    for num_classes in CLASSES:
        row = measure_classes(max(4, num_classes // scale))
        numbers["classes"].append(row)
        cells = [f"{row['us'][name]:.1f}, {row['peak_kib'][name]:.2f}" for name in PARTS]
        disk = ", ".join(f"{name} {size:.2f}" for name, size in row["disk_kib"].items())
        print(f"{row['classes']:>12,}" + "".join(f"{cell:>20}" for cell in cells) + f"  {disk}")
    print(f"{'photos':>12}{'bytes each':>14}{'us each':>10}{'a task of 1 %, us each':>24}")
    for millions in MILLIONS:
        row = measure_index(millions * 1_000_000 // scale)
        numbers["index"].append(row)
        print(f"{row['photos']:>12,}{row['bytes_each']:>14.1f}{row['us_each']:>10.2f}{row['select_us_each']:>24.3f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(numbers, indent=1) + "\n")


def measure_index(num_photos: int) -> dict[str, float]:
    """The memory of a list of files before decoding, and the time to select those of a task."""
    paths = paths_of(num_photos)
    seconds = timed(lambda: listed(paths))
    images = listed(paths)
    task = torch.arange(num_photos // 2, num_photos // 2 + max(1, num_photos // 100))
    photos = images.select(task).stack
    picked = timed(lambda: photos.for_task("a task"))
    return {
        "photos": num_photos,
        "bytes_each": bytes_of(images) / num_photos,
        "us_each": 1e6 * seconds / num_photos,
        "select_us_each": 1e6 * picked / len(task),
    }


def paths_of(num_photos: int, per_folder: int = 1_300) -> list[str]:
    """File names as they would be found on a disk."""
    return [f"train/n{k // per_folder:08d}/n{k // per_folder:08d}_{k % per_folder}.JPEG" for k in range(num_photos)]


def listed(paths: list[str]) -> ImageSet:
    labels = torch.zeros(len(paths), dtype=torch.int64)
    return ImageSet(PhotoStack.of(paths, PhotoLoader(224, 256)), labels, ("photo",))


def bytes_of(images: ImageSet) -> int:
    """The bytes of all paths and arrays of the set."""
    assert isinstance(images.stack, PhotoStack)
    (store,) = images.stack.stores
    paths = [item for item in store.items if isinstance(item, str)]
    texts = [paths, *paths, store.ids]
    parts = [value for part in (images, images.stack, store) for value in vars(part).values()]
    arrays = sum(part.nbytes for part in parts if isinstance(part, np.ndarray | torch.Tensor))
    return arrays + sum(map(sys.getsizeof, [*texts, *(part for part in parts if isinstance(part, bytes))]))


def measure_classes(num_classes: int) -> dict[str, Any]:
    """Microseconds and KiB for each class, with the same number of images in all classes."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(num_classes).repeat_interleave(PER_CLASS)
    features = torch.rand(len(labels), FEATURES, generator=chance)
    some = torch.rand(SCORED, FEATURES, generator=chance)
    means = torch.rand(num_classes, FEATURES, generator=chance)
    sizes = [max(1, num_classes // 100)] * (num_classes // max(1, num_classes // 100))
    places = torch.randint(num_classes, (len(labels),), generator=chance).numpy()
    record = Record("head")
    record.add("head", evaluate(places, labels.numpy(), sizes))
    results = json.dumps(record.state())
    with tempfile.TemporaryDirectory() as folder:
        work: dict[str, Callable[[], object]] = {
            "herding": lambda: herding_by_class(features, labels, range(num_classes), QUOTA),
            "class means": lambda: class_means(features, labels, num_classes),
            # Of as many images, whatever the number of classes.
            "scores": lambda: ranks(nearest_mean_scores(some, means), torch.zeros(SCORED, dtype=torch.int64)),
            "metrics": lambda: evaluate(places, labels.numpy(), sizes),
            "results": lambda: json.dumps(record.state()),
            "checkpoint": lambda: checkpoint(num_classes, Path(folder)),
        }
        found = {name: measured(part) for name, part in work.items()}
        on_disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {
        "classes": num_classes,
        "us": {name: 1e6 * seconds / num_classes for name, (seconds, _) in found.items()},
        "peak_kib": {name: peak / 1024 / num_classes for name, (_, peak) in found.items()},
        "disk_kib": {"results": len(results) / 1024 / num_classes, "checkpoint": on_disk / 1024 / num_classes},
    }


def checkpoint(num_classes: int, folder: Path) -> None:
    """Write and read a memory with some images of each class and a head for all classes."""
    memory = ExemplarMemory(per_class=QUOTA)
    for class_id in range(num_classes):
        memory.remember(class_id, torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    store = CheckpointStore(folder)
    parts = {"memory": memory.state(), "network": {"weight": torch.zeros(num_classes, FEATURES)}}
    store.save({"task": 1}, parts, {})
    assert store.load(print) is not None


def measured(work: Callable[[], object]) -> tuple[float, int]:
    """Seconds, and the largest increase of the process in bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    seconds = timed(work)
    return seconds, max(0, _memory("VmHWM") - before)


def _memory(name: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return 0


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
