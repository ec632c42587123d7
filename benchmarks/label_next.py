"""What the photos that `foster label-next` chooses are worth, against as many chosen by chance.

    python benchmarks/label_next.py                      # scikit-learn's digits, their pixels as features
    python benchmarks/label_next.py PHOTOS --seeds 10    # a folder a class: a frozen pretrained backbone
    python benchmarks/label_next.py --learn --seeds 3    # digits, each choice learned by a learner: minutes a seed

Some photos of some classes are labelled, `--count` of the others are chosen, and accuracy is measured on 30 photos of
each class that are in neither. Unless each choice is learned, the head is that which a learner's training starts from:
linear discriminants of the features. Every seed draws another split, the same for all rules.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import foster
from foster.data.photos.decode import Resizing
from foster.data.photos.find import find_photos
from foster.data.photos.stack import read_photos
from foster.data.sources import load as load_dataset
from foster.errors import FosterError
from foster.learner.features import linear_discriminants
from foster.learner.label_next import doubtful_and_different
from foster.networks.adapted import choose_backbone
from foster.networks.statistics import Statistics

PRETRAINED = "efficientnet_lite0"
NUM_TEST = 30
SETTINGS = {
    "all classes known": {"known": 1.0, "tail": False},
    "all known, some rare": {"known": 1.0, "tail": True},
    "half of them new": {"known": 0.5, "tail": False},
}
"""The share of classes that have labels, and whether photos of some classes are up to twenty times as rare."""

Rule = Callable[[Tensor, Tensor, int, np.random.Generator], list[int]]
RULES: dict[str, Rule] = {
    "chance": lambda doubt, features, count, chance: chance.permutation(len(doubt))[:count].tolist(),
    "doubt alone": lambda doubt, features, count, chance: doubt.argsort(descending=True)[:count].tolist(),
    "variety alone": lambda doubt, features, count, chance: doubtful_and_different(0 * doubt, features, count),
    "label-next": lambda doubt, features, count, chance: doubtful_and_different(doubt, features, count),
}


@dataclass(frozen=True)
class Split:
    """Positions of labelled photos, of those to choose from, and of those to test on."""

    labelled: list[int]
    pool: list[int]
    test: list[int]


def split(labels: Tensor, seed: int, known: float, tail: bool, per_class: int, pool: int) -> Split:
    chance = np.random.default_rng(seed)
    found = Split([], [], [])
    classes = chance.permutation(int(labels.max()) + 1)
    for rank, label in enumerate(classes):
        own = chance.permutation(np.flatnonzero(labels.numpy() == label)).tolist()
        num_labelled = per_class if rank < known * len(classes) else 0
        found.test.extend(own[:NUM_TEST])
        found.labelled.extend(own[NUM_TEST : NUM_TEST + num_labelled])
        share = 20 ** -chance.random() if tail else 1.0
        found.pool.extend(own[NUM_TEST + num_labelled :][: max(2, round(share * pool))])
    return found


def by_discriminants(features: Tensor, labels: Tensor, parts: Split, chosen_by: Rule, count: int, seed: int) -> float:
    def scores(labelled: list[int], asked: list[int]) -> tuple[Tensor, Tensor]:
        """Of the classes that have a label, and which those are."""
        classes, ids = labels[labelled].unique(return_inverse=True)
        sums = Statistics.empty(len(classes), features.shape[1]).added(features[labelled], ids)
        weight, bias = linear_discriminants(sums)
        return features[asked].double() @ weight.T + bias, classes

    best = scores(parts.labelled, parts.pool)[0].softmax(1).topk(2).values
    doubt = (1 - best[:, 0] + best[:, 1]).float()
    chosen = chosen_by(doubt, features[parts.pool], count, np.random.default_rng([seed, 1]))
    found, classes = scores([*parts.labelled, *(parts.pool[k] for k in chosen)], parts.test)
    return 100 * float((classes[found.argmax(1)] == labels[parts.test]).double().mean())


def by_learning(images: Tensor, labels: Tensor, parts: Split, chosen_by: Rule, count: int, seed: int) -> float:
    def named(positions: list[int]) -> tuple[list[Tensor], list[str]]:
        return list(images[positions]), [str(int(label)) for label in labels[positions]]

    learner = foster.Learner(training="fast", backbone="resnet8", memory_total=400, augmentation="shift", seed=seed)
    learner.learn(*named(parts.labelled))
    probability, features = learner.classifier().described(images[parts.pool])
    best = probability.topk(2).values
    doubt = 1 - best[:, 0] + best[:, 1]
    chosen = chosen_by(doubt, features, count, np.random.default_rng([seed, 1]))
    learner.learn(*named([parts.pool[k] for k in chosen]))
    return learner.evaluate(*named(parts.test)).accuracy


@torch.no_grad()
def photo_features(folder: Path, side: int) -> tuple[Tensor, Tensor]:
    """What the frozen backbone sees in every photo of a folder `[N, d]`, and the classes `[N]`."""
    size = (side, side)
    backbone = choose_backbone(PRETRAINED, size, "").make().eval()
    read = read_photos(find_photos(folder), Resizing(*size))
    names = sorted(set(read.labels))
    features = torch.cat([backbone((part.float() / 255 - 0.5) / 0.5) for part in read.images.split(64)])
    return features, torch.tensor([names.index(name) for name in read.labels])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="?", type=Path, help="a folder of labelled photos; without it, digits")
    parser.add_argument("--learn", action="store_true", help="learn each choice (digits)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--side", type=int, default=96, help="of photos")
    parser.add_argument("--per-class", type=int, default=5, help="labelled photos of each class that is known")
    parser.add_argument("--pool", type=int, default=70, help="photos of each class to choose from")
    parser.add_argument("--count", type=int, default=50, help="how many are chosen")
    parser.add_argument("--rules", nargs="*", choices=list(RULES), default=list(RULES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_dataset("digits").train
    measure = by_discriminants
    if given.learn:
        seen, labels, measure = digits.images, digits.labels, by_learning
    elif given.photos:
        seen, labels = photo_features(given.photos, given.side)
    else:
        seen, labels = digits.images[:, 0].flatten(1).float() / 255, digits.labels
    print(f"{len(seen)} photos of {int(labels.max()) + 1} classes, {given.count} chosen, {given.seeds} seeds")
    for name, setting in SETTINGS.items():
        print(f"\n{name:<22}accuracy       above chance (standard error)", flush=True)
        found: dict[str, list[float]] = {rule: [] for rule in given.rules}
        for seed in range(given.seeds):
            parts = split(labels, seed, **setting, per_class=given.per_class, pool=given.pool)  # type: ignore[arg-type]
            for rule, values in found.items():
                values.append(measure(seen, labels, parts, RULES[rule], given.count, seed))
        for rule, values in found.items():
            above = [value - other for value, other in zip(values, found["chance"], strict=True)]
            error = statistics.stdev(above) / len(above) ** 0.5
            mean, spread = statistics.fmean(values), statistics.stdev(values)
            print(f"{rule:<22}{mean:.1f} ± {spread:.1f}   {statistics.fmean(above):+.1f} ({error:.1f})", flush=True)


if __name__ == "__main__":
    try:
        main()
    except FosterError as error:
        sys.exit(str(error))
