"""Photos learned in several ways, on the same photos: accuracy after each learn, and what it costs.

    python benchmarks/photos.py photos                                   # a folder with a subfolder a class
    python benchmarks/photos.py --cifar100 data --classes 30 --learns 3  # CIFAR-100 as photos
    python benchmarks/photos.py photos --learner "" "method=foster"      # also the learner, with these settings

Heads are computed from features of the frozen pretrained backbone. They and the learner see the same photos; the last
`--test` photos of each class are measured on. Processor seconds are ratios to computing the features of all learned
photos once. Test images of CIFAR-100 are not used: they choose no settings.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

import foster
from foster.data.photos.decode import Resizing
from foster.data.photos.find import find_photos
from foster.data.photos.store import read_photos
from foster.data.sources import load as load_dataset
from foster.errors import FosterError
from foster.networks.adapted import choose_backbone
from foster.networks.heads import unit_roots
from foster.networks.statistics import (
    Statistics,
    discriminants,
    discriminants_of_few,
    random_features,
    random_weights,
    ridge_of_features,
)
from foster.seeding import Address

PRETRAINED = "efficientnet_lite0"
Scores = Callable[[Tensor], Tensor]
"""From features `[n, d]` to scores `[n, C]`."""


def sums(features: Tensor, labels: Tensor) -> Statistics:
    return Statistics.empty(int(labels.max()) + 1, features.shape[1]).added(features, labels)


def nearest_means(features: Tensor, labels: Tensor) -> Scores:
    means = torch.nn.functional.normalize(sums(unit(features), labels).means, dim=1)
    return lambda asked: unit(asked) @ means.T


def slda(features: Tensor, labels: Tensor) -> Scores:
    weight, bias = discriminants(sums(unit(features), labels), 0.3)
    return lambda asked: unit(asked) @ weight.T + bias


def of_few(features: Tensor, labels: Tensor) -> Scores:
    weight, bias = discriminants_of_few(sums(unit_roots(features), labels), 0.5)
    return lambda asked: unit_roots(asked) @ weight.T + bias


def ridge(features: Tensor, labels: Tensor) -> Scores:
    values = unit_roots(features)
    centre = values.mean(0)
    scale = values.shape[1] ** 0.5 / (values - centre).norm(dim=1).square().mean().sqrt()
    weight, bias = random_weights(values.shape[1], 2000, Address(0, "benchmark"))

    def mapped(asked: Tensor) -> Tensor:
        return random_features((unit_roots(asked) - centre) * scale, weight, bias).double() / 2000**0.5

    solution = ridge_of_features(mapped(features), labels, int(labels.max()) + 1, 0.1)
    return lambda asked: mapped(asked) @ solution.T


def logistic(features: Tensor, labels: Tensor) -> Scores:
    from sklearn.linear_model import LogisticRegression

    values = unit_roots(features)
    centre, scale = values.mean(0), 1 / (values - values.mean(0)).norm(dim=1).square().mean().sqrt()
    model = LogisticRegression(C=10, max_iter=200).fit(((values - centre) * scale).numpy(), labels.numpy())
    return lambda asked: torch.from_numpy(model.predict_proba(((unit_roots(asked) - centre) * scale).numpy()))


def unit(features: Tensor) -> Tensor:
    return torch.nn.functional.normalize(features, dim=1)


HEADS: dict[str, Callable[[Tensor, Tensor], Scores]] = {
    "nearest class means": nearest_means,
    "discriminants, unit length, shrinkage 0.3": slda,
    "discriminants of few, roots, shrinkage 0.5": of_few,
    "ridge, 2,000 random features of roots": ridge,
    "logistic regression on roots": logistic,
}


@dataclass(frozen=True)
class Task:
    """One learn: folders of photos to learn from and to measure on."""

    learned: Path
    asked: Path


@dataclass(frozen=True)
class Way:
    """Accuracy in percent of all classes seen, and processor seconds, after and for each learn."""

    accuracy: list[float]
    seconds: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="?", type=Path, help="a folder with a subfolder a class")
    parser.add_argument("--cifar100", type=Path, help="instead: the folder of CIFAR-100")
    parser.add_argument("--classes", type=int, default=30, help="how many of the classes are learned")
    parser.add_argument("--learns", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=60, help="photos of a class that are learned, at most")
    parser.add_argument("--test", type=int, default=20, help="photos of a class that are measured on")
    parser.add_argument("--side", type=int, default=192)
    parser.add_argument("--learner", nargs="*", default=[], metavar="'KEY=VALUE ...'", help="the learner, with these")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    try:
        if (given.photos is None) == (given.cifar100 is None):
            sys.exit("give a folder of photos, or --cifar100 FOLDER")
        with tempfile.TemporaryDirectory() as scratch:
            compare(given, Path(scratch))
    except FosterError as error:
        sys.exit(str(error))


def compare(given: argparse.Namespace, folder: Path) -> None:
    classes = cifar_classes(given, folder) if given.cifar100 else folder_classes(given)
    tasks = list(write_tasks(classes, given, folder / "tasks"))
    ways, once = closed_form(tasks, given.side)
    for settings in given.learner:
        ways[f"foster learn {settings}".rstrip()] = learned(tasks, settings.split())
    print(table(ways, once, f"{len(classes)} classes in {len(tasks)} learns, {given.side} pixels"))
    if given.out:
        numbers = {"features_once": once, "ways": {name: vars(way) for name, way in ways.items()}}
        given.out.write_text(json.dumps(numbers, indent=1) + "\n")


def folder_classes(given: argparse.Namespace) -> dict[str, list[Path]]:
    folders = sorted(path for path in given.photos.iterdir() if path.is_dir())[: given.classes]
    return {path.name: sorted(file for file in path.iterdir() if file.is_file()) for path in folders}


def cifar_classes(given: argparse.Namespace, folder: Path) -> dict[str, list[Path]]:
    images = load_dataset("cifar100", given.cifar100).train
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1993))[: given.classes].tolist()
    classes: dict[str, list[Path]] = {}
    for label in order:
        place = folder / "cifar" / images.class_names[label]
        place.mkdir(parents=True)
        own = images.of_classes(label, label + 1).images[: given.per_class + given.test]
        classes[place.name] = [place / f"{number:04d}.png" for number in range(len(own))]
        for path, image in zip(classes[place.name], own, strict=True):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return classes


def write_tasks(classes: dict[str, list[Path]], given: argparse.Namespace, folder: Path) -> Iterator[Task]:
    names = list(classes)
    size = -(-len(names) // given.learns)
    for start in range(0, len(names), size):
        task = Task(folder / str(start) / "learned", folder / str(start) / "asked")
        for name in names[start : start + size]:
            files = classes[name]
            parts = (task.learned, files[: -given.test][: given.per_class]), (task.asked, files[-given.test :])
            for place, chosen in parts:
                (place / name).mkdir(parents=True)
                for file in chosen:
                    shutil.copy(file, place / name)
        yield task


def closed_form(tasks: list[Task], side: int) -> tuple[dict[str, Way], float]:
    """Every head, and the processor seconds of computing the features of all learned photos once."""
    backbone = choose_backbone(PRETRAINED, (side, side)).make().eval()
    names: list[str] = []

    @torch.inference_mode()
    def features_of(place: Path) -> tuple[Tensor, Tensor]:
        read = read_photos(find_photos(place), Resizing(side, side, "crop"))
        names.extend(name for name in dict.fromkeys(read.labels) if name not in names)
        parts = [backbone((part.float() / 255 - 0.5) / 0.5) for part in read.images.split(16)]
        return torch.cat(parts).double(), torch.tensor([names.index(name) for name in read.labels])

    learned: list[tuple[Tensor, Tensor]] = []
    asked: list[tuple[Tensor, Tensor]] = []
    ways = {name: Way([], []) for name in HEADS}
    once = 0.0
    for task in tasks:
        began = time.process_time()
        learned.append(features_of(task.learned))
        once += (spent := time.process_time() - began)
        asked.append(features_of(task.asked))
        features, labels = (torch.cat(part) for part in zip(*learned, strict=True))
        others, expected = (torch.cat(part) for part in zip(*asked, strict=True))
        for name, make in HEADS.items():
            began = time.process_time()
            scores = make(features, labels)
            ways[name].seconds.append(spent + time.process_time() - began)
            ways[name].accuracy.append(100 * float((scores(others).argmax(1) == expected).double().mean()))
    return ways, once


def learned(tasks: list[Task], settings: list[str]) -> Way:
    """The learner itself: its time includes decoding, measuring and what else a learn does."""
    learner = foster.Learner()
    learner.configure(settings)
    way = Way([], [])
    for index, task in enumerate(tasks):
        began = time.process_time()
        learner.learn(task.learned)
        way.seconds.append(time.process_time() - began)
        num_right = num_asked = 0
        for seen in tasks[: index + 1]:
            photos = find_photos(seen.asked)
            answers = learner.predict(photos.items)
            num_right += sum(one.label == label for one, label in zip(answers, photos.labels, strict=True))
            num_asked += len(photos)
        way.accuracy.append(100 * num_right / num_asked)
    return way


def table(ways: dict[str, Way], once: float, title: str) -> str:
    lines = [
        f"{title}; the features of all learned photos once: {once:.1f} processor seconds",
        "",
        "| way | accuracy after each learn | mean | cost, features once = 1 | last learn / first |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, way in ways.items():
        after = " / ".join(f"{value:.1f}" for value in way.accuracy)
        mean, ratio = sum(way.accuracy) / len(way.accuracy), sum(way.seconds) / once
        lines.append(f"| {name} | {after} | {mean:.1f} | {ratio:.2f} | {way.seconds[-1] / way.seconds[0]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
