"""How time and memory grow with classes and images: the list of photos, exemplars, evaluation, results, checkpoints.

    python benchmarks/scale.py --out scale.json       # 100, 1,000 and 10,000 classes; 1, 5 and 14 million photos
    python benchmarks/scale.py --quick                # a hundredth of that

Each row has the time for each image or class, which must not grow from size to size.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.herding import herding_by_class
from foster.data.memory import ExemplarMemory
from foster.data.photos.encoded import PhotoFiles
from foster.evaluation.metrics import evaluate
from foster.evaluation.predict import class_means
from foster.experiment.record import Record
from foster.training.checkpoint import CheckpointStore

CLASSES = (100, 1_000, 10_000)
MILLIONS = (1, 5, 14)
PER_CLASS, FEATURES, QUOTA = 60, 64, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--quick", action="store_true", help="a hundredth of everything")
    arguments = parser.parse_args()
    scale = 100 if arguments.quick else 1
    numbers: dict[str, Any] = {"index": [], "classes": []}
    print(f"{'photos':>12}{'list, bytes each':>18}{'us each':>10}{'a task of 1 %, us each':>24}")
    for millions in MILLIONS:
        row = measure_index(millions * 1_000_000 // scale)
        numbers["index"].append(row)
        print(f"{row['photos']:>12,}{row['bytes_each']:>18.1f}{row['us_each']:>10.2f}{row['select_us_each']:>24.3f}")
    names = ("herding", "class_means", "evaluate", "record", "checkpoint")
    print(f"{'classes':>12}" + "".join(f"{name + ', us each':>22}" for name in names))
    for num_classes in CLASSES:
        row = measure_classes(max(4, num_classes // scale))
        numbers["classes"].append(row)
        print(f"{row['classes']:>12,}" + "".join(f"{row[name]:>22.1f}" for name in names))
    numbers["peak_mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if arguments.out:
        arguments.out.write_text(json.dumps(numbers, indent=1) + "\n")


def measure_index(num_photos: int) -> dict[str, float]:
    """The list of so many files in folders of 1,300, with a label each, and of it what one task takes."""
    per_folder = 1_300
    num_folders = -(-num_photos // per_folder)
    names = [
        [f"n{folder:08d}_{number}.JPEG" for number in range(min(per_folder, num_photos - folder * per_folder))]
        for folder in range(num_folders)
    ]
    folders = [Path("train") / f"n{folder:08d}" for folder in range(num_folders)]
    began = time.monotonic()
    files = PhotoFiles.of(folders, names)
    labels = torch.from_numpy(files.folder_ids.astype(np.int64))
    seconds = time.monotonic() - began
    task = np.arange(num_photos // 2, num_photos // 2 + max(1, num_photos // 100))
    picked = timed(lambda: files.select(task))
    return {
        "photos": num_photos,
        "bytes_each": (files.nbytes + labels.nbytes) / num_photos,
        "us_each": 1e6 * seconds / num_photos,
        "select_us_each": 1e6 * picked / len(task),
    }


def measure_classes(num_classes: int) -> dict[str, float]:
    """Microseconds for each class, where all classes have equally many images."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(num_classes).repeat_interleave(PER_CLASS)
    features = torch.rand(len(labels), FEATURES, generator=chance)
    sizes = [max(1, num_classes // 100)] * (num_classes // max(1, num_classes // 100))
    ranks = torch.randint(num_classes, (len(labels),), generator=chance).numpy()
    found = {"classes": float(num_classes)}
    found["herding"] = timed(lambda: herding_by_class(features, labels, range(num_classes), QUOTA))
    found["class_means"] = timed(lambda: class_means(features, labels, num_classes))
    found["evaluate"] = timed(lambda: evaluate(ranks, labels.numpy(), sizes))
    record = Record("head")
    evaluation = evaluate(ranks, labels.numpy(), sizes)
    record.add("head", evaluation)
    found["record"] = timed(lambda: json.dumps(record.state()))
    found["checkpoint"] = timed(lambda: checkpoint(num_classes))
    return {name: value if name == "classes" else 1e6 * value / num_classes for name, value in found.items()}


def checkpoint(num_classes: int) -> None:
    """A memory of some images of each class and a head for all, written and read back."""
    memory = ExemplarMemory(per_class=QUOTA)
    for class_id in range(num_classes):
        memory.remember(class_id, torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder))
        parts = {"memory": memory.state(), "network": {"weight": torch.zeros(num_classes, FEATURES)}}
        store.save({"task": 1}, parts, {})
        assert store.load(print) is not None


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
