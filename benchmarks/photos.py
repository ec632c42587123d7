"""A beginner's photos, three ways: pretrained behind a frozen trunk, pretrained and trained whole, and from scratch.

    python benchmarks/photos.py --data data                    # CIFAR-100 as PNG folders, ten learns, on a GPU
    python benchmarks/photos.py --data data --tasks 2 --classes 4 --per-class 10 --training fast    # a trial on a CPU
    python benchmarks/photos.py --data data --weights lite0.safetensors    # without their package
    python benchmarks/photos.py --data data --held-out 100 --also "foster.compress_cutmix=1.0"    # settings to choose
    python benchmarks/photos.py --save-weights lite0.safetensors    # writes that file and does nothing else

Images of `--side` pixels and `--per-class` photos of each class, the first of the training set; accuracy on all test
images of the classes seen or, with `--held-out`, on as many training images a class that come after those learned: test
images choose no settings. Beside them stands the simple way: the same frozen backbone and the nearest class mean.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import foster
from foster.data.images import ImageSet
from foster.data.photos.decode import Resizing
from foster.data.photos.find import find_photos
from foster.data.photos.store import ReadPhotos, read_photos
from foster.data.sources import load as load_dataset
from foster.errors import FosterError
from foster.evaluation.predict import class_means, nearest_mean_scores
from foster.learner.learner import Learner
from foster.networks.adapted import choose_backbone
from foster.networks.pretrained import packaged_weights
from foster.training.engine import find_device

PRETRAINED = "efficientnet_lite0"
WAYS: dict[str, dict[str, Any]] = {
    "pretrained, frozen trunk": {"backbone": PRETRAINED, "trunk": 7},
    "pretrained, all trained": {"backbone": PRETRAINED, "trunk": "none"},
    "from scratch": {"backbone": "resnet32"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of CIFAR-100")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--classes", type=int, default=100, help="how many of the classes are learned")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--training", default="standard")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--also", nargs="*", default=[], metavar="'KEY=VALUE ...'", help="every way with these, too")
    parser.add_argument("--held-out", type=int, help="evaluate on so many training images a class, not on the test's")
    parser.add_argument("--weights", default="", help="a .safetensors file with the pretrained weights")
    parser.add_argument("--save-weights", type=Path, help="write the package's weights as such a file")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    try:
        if given.save_weights:
            save_weights(given.save_weights)
            return
        print(table(compare(given)))
    except FosterError as error:
        sys.exit(str(error))


def save_weights(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in packaged_weights(PRETRAINED).items()}, path)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


def compare(given: argparse.Namespace) -> dict[str, Any]:
    dataset = load_dataset("cifar100", Path(given.data) if given.data else None)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1993))[: given.classes].tolist()
    size = -(-len(order) // given.tasks)
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    device = find_device("auto")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    facts = {key: getattr(given, key) for key in ("tasks", "classes", "per_class", "side", "training", "held_out")}
    found: dict[str, Any] = {}
    numbers = {**facts, "date": time.strftime("%Y-%m-%d"), "device": name, "torch": torch.__version__, "ways": found}

    def add(name: str, way: dict[str, Any]) -> None:
        found[name] = way
        print(f"{name}: {way['accuracy'][-1]:.2f} %, {sum(way['seconds']):.0f} s", flush=True)
        if given.out:
            given.out.write_text(json.dumps(numbers, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for index, group in enumerate(groups):
            write_photos(dataset.train, group, folder / f"task{index}", slice(given.per_class))
            if given.held_out:
                after = slice(given.per_class, given.per_class + given.held_out)
                write_photos(dataset.train, group, folder / f"test{index}", after)
            else:
                write_photos(dataset.test, group, folder / f"test{index}", slice(None))
        for way, changes in itertools.product(given.ways, ["", *given.also]):
            add(f"{way}, {changes}" if changes else way, learned(way, changes.split(), groups, folder, given))
        add("nearest class mean, frozen", simple(groups, folder, given))
    return numbers


def write_photos(images: ImageSet, classes: list[int], folder: Path, which: slice) -> None:
    for label in classes:
        place = folder / images.class_names[label]
        place.mkdir(parents=True)
        for number, image in enumerate(images.of_classes(label, label + 1).images[which]):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:04d}.png", compress_level=1)


def learned(
    way: str, changes: list[str], groups: list[list[int]], folder: Path, given: argparse.Namespace
) -> dict[str, Any]:
    settings = dict(WAYS[way])
    if settings["backbone"] == PRETRAINED and given.weights:
        settings["weights"] = given.weights
    learner: Learner = foster.Learner(training=given.training, image_size=given.side, resize="stretch", **settings)
    learner.configure(changes)
    accuracies, seconds = [], []
    tests: list[ReadPhotos] = []
    for index in range(len(groups)):
        began = time.perf_counter()
        learner.learn(folder / f"task{index}")
        seconds.append(time.perf_counter() - began)
        tests.append(read_photos(find_photos(folder / f"test{index}"), learner.resizing))
        found = learner.classifier().probabilities(torch.cat([test.images for test in tests])).argmax(1)
        expected = [learner.class_names.index(label) for test in tests for label in test.labels]
        accuracies.append(100 * float((found == torch.tensor(expected)).float().mean()))
    return {"accuracy": accuracies, "seconds": seconds}


@torch.no_grad()
def simple(groups: list[list[int]], folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """A frozen backbone and the nearest class mean: no training, no old photos."""
    device, size = find_device("auto"), (given.side, given.side)
    backbone = choose_backbone(PRETRAINED, size, given.weights).make().eval().to(device)
    names: list[str] = []

    def features_of(place: Path) -> tuple[torch.Tensor, torch.Tensor]:
        read = read_photos(find_photos(place), Resizing(*size))
        names.extend(name for name in dict.fromkeys(read.labels) if name not in names)
        parts = [backbone((part.to(device).float() / 255 - 0.5) / 0.5).cpu() for part in read.images.split(64)]
        return torch.cat(parts), torch.tensor([names.index(name) for name in read.labels])

    known: list[tuple[torch.Tensor, torch.Tensor]] = []
    tests: list[tuple[torch.Tensor, torch.Tensor]] = []
    accuracies, seconds = [], []
    for index in range(len(groups)):
        began = time.perf_counter()
        known.append(features_of(folder / f"task{index}"))
        features, labels = (torch.cat(part) for part in zip(*known, strict=True))
        means = class_means(features, labels, len(names))
        seconds.append(time.perf_counter() - began)
        tests.append(features_of(folder / f"test{index}"))
        found, expected = (torch.cat(part) for part in zip(*tests, strict=True))
        accuracies.append(100 * float((nearest_mean_scores(found, means).argmax(1) == expected).float().mean()))
    return {"accuracy": accuracies, "seconds": seconds}


def table(numbers: dict[str, Any]) -> str:
    seen = f"{numbers['held_out']} held-out images a class" if numbers["held_out"] else "the test images"
    head = (
        f"{numbers['classes']} classes of CIFAR-100 in {numbers['tasks']} learns, {numbers['per_class']} photos "
        f"a class at {numbers['side']} pixels, training {numbers['training']}, on {seen}: "
        f"{numbers['device']}, torch {numbers['torch']}"
    )
    lines = [
        head,
        "",
        "| way | first learn | after the last | mean over learns | seconds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for way, found in numbers["ways"].items():
        accuracy = found["accuracy"]
        mean = sum(accuracy) / len(accuracy)
        lines.append(f"| {way} | {accuracy[0]:.2f} | {accuracy[-1]:.2f} | {mean:.2f} | {sum(found['seconds']):.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
