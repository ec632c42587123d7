"""How well wrong labels and unknown things are told, from features that benchmarks/photos.py has saved.

    python benchmarks/photo_doubts.py labels saved.npz other.npz                 # planted wrong labels
    python benchmarks/photo_doubts.py unknown saved.npz --strangers other.npz    # photos of classes that are not known

`labels`: classes and photos are drawn, three photos of one class are put into another or four anywhere, and what
`foster check` finds is counted. `unknown`: some classes are learned; `unknown auto` is asked about other photos of
them, about the classes that were not learned and about strangers.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from foster.learner.calibration import expected_calibration_error, fit_temperature, probabilities
from foster.learner.check import LEAST_ACCURACY, are_suspect, left_out_probabilities
from foster.learner.familiarity import Familiarity, auroc
from foster.learner.features import solve
from foster.networks.statistics import Statistics

SIZES = ((3, 18), (5, 30), (8, 20), (10, 20))
"""Classes, and photos of each, among which wrong labels are planted."""


class Photos(NamedTuple):
    features: Tensor
    labels: Tensor

    @classmethod
    def read(cls, file: Path) -> "Photos":
        with np.load(file) as arrays:
            return cls(torch.from_numpy(arrays["features"]), torch.from_numpy(arrays["labels"]).long())


def planted(photos: Photos, num_classes: int, count: int, way: str, draw: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, what the photos show, and their labels, some of them wrong."""
    chance = random.Random(f"{num_classes} {count} {way} {draw}")
    classes = chance.sample(range(int(photos.labels.max()) + 1), num_classes)
    members = [chance.sample((photos.labels == label).nonzero()[:, 0].tolist(), count) for label in classes]
    true = torch.arange(num_classes).repeat_interleave(count)
    labels = true.clone()
    if way == "three":
        source, target = chance.sample(range(num_classes), 2)
        labels[chance.sample((true == source).nonzero()[:, 0].tolist(), 3)] = target
    else:
        for k in chance.sample(range(len(true)), 4):
            labels[k] = chance.choice([label for label in range(num_classes) if label != true[k]])
    return photos.features[torch.tensor(members).flatten()], true, labels


def wrong_labels(files: list[Path], draws: int) -> Iterator[dict[str, object]]:
    for file in files:
        photos = Photos.read(file)
        for num_classes, count in SIZES:
            for way in ("three", "four"):
                found = num_wrong = false = num_right = 0
                for draw in range(draws):
                    features, true, labels = planted(photos, num_classes, count, way, draw)
                    probability = left_out_probabilities(features, labels, range(len(labels)))
                    is_trusted = float((probability.argmax(1) == labels).double().mean()) >= LEAST_ACCURACY
                    accused = are_suspect(probability, labels) & is_trusted
                    is_wrong = true != labels
                    found, num_wrong = found + int((accused & is_wrong).sum()), num_wrong + int(is_wrong.sum())
                    false, num_right = false + int((accused & ~is_wrong).sum()), num_right + int((~is_wrong).sum())
                yield {
                    "photos": file.stem,
                    "cell": f"{num_classes} x {count}, {way}",
                    "planted": num_wrong,
                    "found": found,
                    "right_labels": num_right,
                    "false_alarms": false,
                }


def unknown(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    photos = Photos.read(given.files[0])
    strangers = {file.stem: Photos.read(file).features for file in given.strangers}
    for draw in range(given.draws):
        source = torch.Generator().manual_seed(draw)
        order = torch.randperm(int(photos.labels.max()) + 1, generator=source).tolist()
        learned, asked = [], []
        for label in order[: given.classes]:
            own = (photos.labels == label).nonzero()[:, 0]
            own = own[torch.randperm(len(own), generator=source)]
            asked.append(own[: given.test])
            learned.append(own[given.test :][: given.per_class])
        labels = torch.repeat_interleave(torch.arange(len(learned)), torch.tensor([len(part) for part in learned]))
        features = photos.features[torch.cat(learned)]
        known = Statistics.empty(len(learned), features.shape[1]).added(features, labels)
        solved = solve(known, features, labels, tuple(f"{k:08d}" for k in range(len(labels))))
        of_measured = labels[solved.positions]
        temperature = fit_temperature(solved.scores, of_measured) or 1.0
        left_out = probabilities(solved.scores, temperature)
        familiarity = Familiarity.left_out(known, features[solved.positions], of_measured, left_out)
        if familiarity is None:
            raise SystemExit("too few photos")

        def described(features: Tensor, head: torch.nn.Module = solved.head, scale: float = temperature) -> Tensor:
            with torch.no_grad():
                return probabilities(head(features.float().square()), scale)

        tests = photos.features[torch.cat(asked)]
        expected = torch.repeat_interleave(torch.arange(len(asked)), torch.tensor([len(part) for part in asked]))
        answered = described(tests)
        familiar = familiarity.scores(answered, tests)
        others = photos.features[torch.isin(photos.labels, torch.tensor(order[given.classes :]))]
        row: dict[str, object] = {
            "known": given.files[0].stem,
            "draw": draw,
            "estimated_accuracy": 100 * float((solved.scores.argmax(1) == of_measured).double().mean()),
            "accuracy": 100 * float((answered.argmax(1) == expected).double().mean()),
            "calibration_error": 100 * expected_calibration_error(answered, expected),
            "known_refused": [int((familiar < familiarity.threshold).sum()), len(familiar)],
        }
        for name, rows in ({"other classes": others} | strangers).items():
            if len(rows):
                foreign = familiarity.scores(described(rows), rows)
                refused = int((foreign < familiarity.threshold).sum())
                row[name] = {"refused": [refused, len(rows)], "auroc": auroc(familiar, foreign)}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("labels", "unknown"))
    parser.add_argument("files", nargs="+", type=Path, help=".npz files of benchmarks/photos.py --features")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--per-class", type=int, default=60)
    parser.add_argument("--test", type=int, default=10)
    parser.add_argument("--strangers", nargs="*", type=Path, default=[])
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    rows = []
    for row in wrong_labels(given.files, given.draws) if given.what == "labels" else unknown(given):
        print(row, flush=True)
        rows.append(row)
    if given.out:
        options = {name: getattr(given, name) for name in ("what", "draws", "classes", "per_class", "test")}
        given.out.write_text(json.dumps({"options": options, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
