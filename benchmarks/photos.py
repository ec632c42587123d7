"""Photos learned in several ways, on the same photos: accuracy after each learn, and what it costs.

    python benchmarks/photos.py PHOTOS                                         # a folder with a subfolder a class
    python benchmarks/photos.py PHOTOS --learner "" "method=foster"            # also `foster learn`, with settings
    python benchmarks/photos.py --features saved.npz --learns 10 --draws 3     # heads alone, from saved features

Heads are computed from features of the frozen pretrained backbone. The last `--test` photos of each class are measured
on, the others are learned. A draw is an order of the classes and a choice of the learned photos. `foster learn` runs
the first draw as a program of its own. Costs are processor seconds, as a ratio to computing the features of the same
photos once: decoding and the backbone. The program's start (imports, weights) is measured and subtracted.
"""

import argparse
import json
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import foster
from foster.bundle.manifest import Preprocessing
from foster.data.photos.decode import ImageError, Resizing, decoded_by
from foster.data.photos.find import find_photos
from foster.errors import FosterError
from foster.learner.classifier import Classifier
from foster.learner.closed_form import stored_features
from foster.networks.adapted import choose_backbone
from foster.networks.heads import RootHead
from foster.networks.network import Network
from foster.networks.statistics import Statistics, discriminants, discriminants_of_few, random_features, random_weights
from foster.networks.statistics import ridge as solve_ridge
from foster.seeding import Address
from foster.settings.learner_defaults import PRETRAINED

Scores = Callable[[Tensor], Tensor]
"""From features `[n, d]`, which are square roots of unit length, to scores `[n, C]`."""


def sums(features: Tensor, labels: Tensor) -> Statistics:
    return Statistics.empty(int(labels.max()) + 1, features.shape[1]).added(features, labels)


def unit(roots: Tensor) -> Tensor:
    """The features of unit length that these are the roots of."""
    return torch.nn.functional.normalize(roots.square(), dim=1)


def nearest_means(roots: Tensor, labels: Tensor) -> Scores:
    means = torch.nn.functional.normalize(sums(roots, labels).means, dim=1)
    return lambda asked: asked @ means.T


def slda(roots: Tensor, labels: Tensor) -> Scores:
    weight, bias = discriminants(sums(unit(roots), labels), 0.3)
    return lambda asked: unit(asked) @ weight.T + bias


def plain(roots: Tensor, labels: Tensor) -> Scores:
    weight, bias = discriminants(sums(roots, labels), 0.5)
    return lambda asked: asked @ weight.T + bias


def of_few(roots: Tensor, labels: Tensor) -> Scores:
    weight, bias = discriminants_of_few(sums(roots, labels))
    return lambda asked: asked @ weight.T + bias


def ridge(roots: Tensor, labels: Tensor) -> Scores:
    centre = roots.mean(0)
    scale = roots.shape[1] ** 0.5 / (roots - centre).norm(dim=1).square().mean().sqrt()
    weight, bias = random_weights(roots.shape[1], 2000, Address(0, "benchmark"))

    def mapped(asked: Tensor) -> Tensor:
        return random_features((asked - centre) * scale, weight, bias).double() / 2000**0.5

    statistics = sums(mapped(roots), labels)
    solution = solve_ridge(statistics.second_moment, statistics.sums, 0.1)
    return lambda asked: mapped(asked) @ solution.T


def logistic(roots: Tensor, labels: Tensor) -> Scores:
    from sklearn.linear_model import LogisticRegression

    centre, scale = roots.mean(0), 1 / (roots - roots.mean(0)).norm(dim=1).square().mean().sqrt()
    model = LogisticRegression(C=10, max_iter=200).fit(((roots - centre) * scale).numpy(), labels.numpy())
    return lambda asked: torch.from_numpy(model.predict_proba(((asked - centre) * scale).numpy()))


HEADS: dict[str, Callable[[Tensor, Tensor], Scores]] = {
    "means": nearest_means,
    "slda": slda,
    "plain": plain,
    "few": of_few,
    "ridge": ridge,
    "logistic": logistic,
}
TITLES = {
    "means": "nearest class means",
    "slda": "discriminants of unit length, shrinkage 0.3",
    "plain": "discriminants of roots, shrinkage 0.5",
    "few": "the same, corrected for few images",
    "ridge": "ridge, 2,000 random features of roots",
    "logistic": "logistic regression on roots",
}


@dataclass(frozen=True)
class Saved:
    """Features of photos, float16 `[N, d]`, as the program stores them, labels `[N]` and class names."""

    features: Tensor
    labels: Tensor
    names: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> "Saved":
        with np.load(file) as arrays:
            names = tuple(str(name) for name in arrays["names"])
            return cls(torch.from_numpy(arrays["features"]), torch.from_numpy(arrays["labels"]), names)


@dataclass(frozen=True)
class Learn:
    """Positions of the photos of one learn: learned and asked."""

    learned: list[int]
    asked: list[int]


@dataclass
class Way:
    """For each draw and learn, the accuracy in percent on all classes seen; for each learn of the first draw, the
    processor seconds beside those of the features."""

    accuracy: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="?", type=Path, help="a folder with a subfolder a class")
    parser.add_argument("--features", type=Path, help="an .npz file of their features: read, or computed and written")
    parser.add_argument("--classes", type=int, help="how many of the classes are learned; by default all")
    parser.add_argument("--learns", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=60, help="photos of a class that are learned, at most")
    parser.add_argument("--few", type=int, help="photos of every second class that are learned")
    parser.add_argument("--test", type=int, default=20, help="photos of a class that are measured on")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--backbone", default=PRETRAINED, help="whose features the heads are computed from")
    parser.add_argument("--side", type=int, default=192)
    parser.add_argument("--heads", nargs="*", choices=tuple(HEADS), default=list(HEADS))
    parser.add_argument("--learner", nargs="*", default=[], metavar="'KEY=VALUE ...'", help="foster learn, with these")
    parser.add_argument("--title", help="what the photos are, for the table")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    if given.photos is None and not (given.features and given.features.exists()):
        sys.exit("give a folder of photos, or --features FILE")
    if given.photos is None and given.learner:
        sys.exit("--learner needs the photos themselves")
    try:
        compare(given)
    except FosterError as error:
        sys.exit(str(error))


def compare(given: argparse.Namespace) -> None:
    files = list_files(given.photos) if given.photos else []
    saved = Saved.read(given.features) if given.features and given.features.exists() else None
    labels = saved.labels if saved else torch.tensor([label for _, label in files])
    draws = [drawn(labels, given, seed) for seed in range(given.draws)]
    once: list[float] = []
    if saved is None:
        saved, once = compute(files, draws, given)
        if given.features:
            arrays = {"features": saved.features.numpy(), "labels": labels.numpy(), "names": np.array(saved.names)}
            np.savez(given.features, **arrays)
    ways = {TITLES[name]: measured(HEADS[name], saved, draws) for name in given.heads}
    start = program_start(given.backbone) if given.learner else 0.0
    for settings in given.learner:
        ways[f"foster learn {settings}".rstrip()] = run_program(files, draws[0], settings, start)
    title = given.title or (given.photos or given.features).name
    sizes = f"{given.per_class} and {given.few} in turn" if given.few else str(given.per_class)
    classes = len({int(label) for learn in draws[0] for label in labels[learn.learned]})
    print(f"{title}: {classes} classes in {given.learns} learns, {sizes} photos each, {given.draws} draws")
    print(table(ways, once, start))
    if given.out:
        options = {name: value for name, value in vars(given).items() if name not in ("photos", "features", "out")}
        record = {
            "options": {**options, "title": title, "classes": classes},
            "machine": f"{platform.machine()}, {torch.get_num_threads()} thread, torch {torch.__version__}",
            "features_once": once,
            "program_start": start,
            "ways": {name: vars(way) for name, way in ways.items()},
        }
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=1) + "\n")


def list_files(folder: Path) -> list[tuple[Path, int]]:
    photos = find_photos(folder)
    ids = {name: number for number, name in enumerate(photos.class_names)}
    return [(Path(str(item)), ids[label]) for item, label in zip(photos.items, photos.labels, strict=True)]


def drawn(labels: Tensor, given: argparse.Namespace, seed: int) -> list[Learn]:
    source = torch.Generator().manual_seed(seed)
    order = torch.randperm(int(labels.max()) + 1, generator=source)[: given.classes].tolist()
    learns = [Learn([], []) for _ in range(given.learns)]
    for number, label in enumerate(order):
        members = (labels == label).nonzero()[:, 0]
        others, asked = members[: -given.test], members[-given.test :]
        count = given.few if given.few and number % 2 else given.per_class
        learn = learns[number * given.learns // len(order)]
        learn.learned.extend(others[torch.randperm(len(others), generator=source)[:count]].tolist())
        learn.asked.extend(asked.tolist())
    return learns


def used_in(draws: Sequence[Sequence[Learn]]) -> set[int]:
    return {position for learns in draws for learn in learns for position in (*learn.learned, *learn.asked)}


def compute(
    files: Sequence[tuple[Path, int]], draws: Sequence[Sequence[Learn]], given: argparse.Namespace
) -> tuple[Saved, list[float]]:
    """The features, and for each learn of the first draw the processor seconds of those that it learns from."""
    choice = choose_backbone(given.backbone, (given.side, given.side))
    backbone = choice.make()
    resizing = Resizing(given.side, given.side)
    preprocessing = Preprocessing.model_validate({**vars(resizing), "mean": choice.mean, "std": choice.std})
    classifier = Classifier(Network([backbone], RootHead(backbone.feature_size, 0)), preprocessing)
    features = torch.zeros(len(files), backbone.feature_size, dtype=torch.float16)

    def fill(positions: list[int]) -> float:
        began = time.process_time()
        for batch in decoded_by([files[k][0] for k in positions], resizing, given.side):
            for reason in batch.unreadable.values():
                raise ImageError(reason)
            chosen = [positions[k] for k in batch.results]
            features[chosen] = stored_features(classifier.features(torch.stack(list(batch.results.values()))))
        return time.process_time() - began

    fill(list(range(min(8, len(files)))))  # the first time, kernels are chosen
    once = [fill(learn.learned) for learn in draws[0]]
    done = {position for learn in draws[0] for position in learn.learned}
    # Features that are saved serve other draws and options, too.
    wanted = range(len(files)) if given.features else sorted(used_in(draws))
    fill([position for position in wanted if position not in done])
    names = tuple(dict.fromkeys(path.parent.name for path, _ in files))
    return Saved(features, torch.tensor([label for _, label in files]), names), once


def measured(make: Callable[[Tensor, Tensor], Scores], saved: Saved, draws: Sequence[Sequence[Learn]]) -> Way:
    way = Way()
    for learns in draws:
        learned: list[int] = []
        asked: list[int] = []
        accuracy, ids = [], torch.zeros(int(saved.labels.max()) + 1, dtype=torch.int64)
        for learn in learns:
            learned += learn.learned
            asked += learn.asked
            seen = saved.labels[learned].unique()
            ids[seen] = torch.arange(len(seen))
            began = time.process_time()
            scores = make(saved.features[learned].double(), ids[saved.labels[learned]])
            if learns is draws[0]:
                way.seconds.append(time.process_time() - began)
            is_right = scores(saved.features[asked].double()).argmax(1) == ids[saved.labels[asked]]
            accuracy.append(100 * float(is_right.double().mean()))
        way.accuracy.append(accuracy)
    return way


def program_start(backbone: str) -> float:
    """Processor seconds of a program that imports what a learn needs and loads the weights of the backbone."""
    code = (
        "import foster.learner.learner, foster.learner.closed_form, foster.cli\n"
        f"from foster.networks.adapted import choose_backbone\nchoose_backbone('{backbone}', (192, 192)).make()"
    )
    return min(processor_seconds([sys.executable, "-c", code]) for _ in range(2))


def processor_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_program(files: Sequence[tuple[Path, int]], learns: Sequence[Learn], settings: str, start: float) -> Way:
    """`foster learn` for each learn, from the bundle of the one before."""
    way = Way([[]], [])
    with tempfile.TemporaryDirectory() as scratch:
        asked: list[Path] = []
        last: Path | None = None
        for number, learn in enumerate(learns):
            folder, bundle = Path(scratch, f"photos{number}"), Path(scratch, f"bundle{number}")
            for position in learn.learned:
                path = files[position][0]
                (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
                shutil.copy(path, folder / path.parent.name)
            command = [sys.executable, "-m", "foster", "learn", str(folder), "--bundle", str(bundle)]
            command += (["--from", str(last)] if last else []) + shlex.split(settings)
            way.seconds.append(processor_seconds(command) - start)
            asked += [files[position][0] for position in learn.asked]
            answers = foster.load(bundle).predict(asked)
            right = [one.label == path.parent.name for one, path in zip(answers, asked, strict=True)]
            way.accuracy[0].append(100 * sum(right) / len(right))
            last = bundle
    return way


def table(ways: dict[str, Way], once: list[float], start: float) -> str:
    lines = []
    if once:
        lines += [f"computing the features of the learned photos once: {sum(once):.1f} processor seconds"]
        lines += [f"the program's start: {start:.1f}"] if start else []
    lines += ["", "| way | after the first learn | last | mean over learns | cost of all learns, first, last |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    for name, way in ways.items():
        accuracy = np.array(way.accuracy)
        row = f"| {name} | {accuracy[:, 0].mean():.1f} | {accuracy[:, -1].mean():.1f} | {accuracy.mean():.1f} | "
        if once:
            # The program computes features itself; beside a head they are counted once.
            spent = way.seconds if name.startswith("foster learn") else np.add(way.seconds, once)
            row += f"{sum(spent) / sum(once):.2f}, {spent[0] / once[0]:.2f}, {spent[-1] / once[-1]:.2f} "
        lines.append(row + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
