"""A comparison of scores for unknown classes, on features that benchmarks/photos.py has saved.

    python benchmarks/unknown_scores.py tiny.npz=20:10,60 chess.npz=3:10,40 --out scores.json

Each argument is a file, the number of known classes, and the numbers of photos of each that are learned. Unknown photos
are those of the other classes of the same file (near) and of the other files (far). A score is judged by the share of
unknown photos that it rejects at the threshold that rejects 3 % of known test photos. The rule and the results are in
results/notes/photo-unknown.md.
"""

import argparse
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from photo_doubts import Photos
from torch import Tensor
from torch.nn.functional import normalize

from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.familiarity import Familiarity, _gain, _whitened
from foster.learner.features import Solved, solve
from foster.networks.statistics import Statistics

MEASURES = ("confidence", "highest", "energy", "margin", "mahalanobis", "relative", "neighbours", "whitened")
TODAY = "confidence + relative, shares"
BEST = "confidence + energy + mahalanobis, standardised"
FITTED = (0, 1, 4, 5)
KEPT = {TODAY, BEST, "fitted", *MEASURES}
"""The scores that are written to the file; all scores are printed."""

NUM_NEIGHBOURS, NUM_TEST, NUM_DRAWS, NUM_FAR, REFUSED = 5, 10, 5, 500, 0.03


class Cell(NamedTuple):
    """Measures `[8, n]` of learned photos (leave-one-out), of the same without their class, and of other photos."""

    learned: Tensor
    foreign: Tensor
    known: Tensor
    near: Tensor
    far: Tensor


def nearest(similarity: Tensor) -> Tensor:
    return similarity.topk(min(NUM_NEIGHBOURS, similarity.shape[1]), 1).values.mean(1)


class Known:
    """The statistics of learned photos, and the measures that are computed from them."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        num_classes = int(labels.max()) + 1
        self.features, self.labels = features.double(), labels
        self.statistics = Statistics.empty(num_classes, features.shape[1]).added(features, labels)
        ids = tuple(f"{k:08d}" for k in range(len(labels)))
        self.solved: Solved = solve(self.statistics, features, labels, ids)
        self.temperature = fit_temperature(self.solved.scores, labels[self.solved.positions]) or 1.0
        self.familiarity = Familiarity(self.statistics, torch.zeros(2, 2), 0.0)
        self.turned = self._turned(self.features)

    def _turned(self, features: Tensor) -> Tensor:
        values = features.double() - self.familiarity._centre
        return normalize(_whitened(self.familiarity._factors[0], values), dim=1)

    def _measures(
        self, scores: Tensor, to_class: Tensor, to_all: Tensor, similarity: Tensor, of_turned: Tensor
    ) -> Tensor:
        finite = scores.double().where(scores.isfinite(), torch.nan)
        scores = scores.double() - finite.nanmean(1, keepdim=True)
        best, second = scores.topk(2, 1).values.unbind(1)
        confidence = probabilities(scores, self.temperature).double().amax(1).logit(eps=1e-6)
        energy = torch.logsumexp(scores / self.temperature, 1)
        near = -to_class.amin(1)
        return torch.stack(
            (confidence, best, energy, best - second, near, to_all + near, nearest(similarity), nearest(of_turned))
        )

    def measures(self, features: Tensor) -> Tensor:
        """The measures of photos `[n, d]` that were not learned."""
        with torch.no_grad():
            scores = self.solved.head(features.float().square())
        to_class, to_all, _ = self.familiarity._squared_distances(features)
        similarity = features.double() @ self.features.T
        return self._measures(scores, to_class, to_all, similarity, self._turned(features) @ self.turned.T)

    def left_out(self) -> tuple[Tensor, Tensor]:
        """The measures of learned photos: each without itself, and each without its class, as if it were unknown."""
        positions = self.solved.positions
        labels, rows = self.labels[positions], torch.arange(len(positions))
        to_class, to_all, seen = self.familiarity._squared_distances(self.features[positions])
        counts, num_images = self.statistics.counts[labels].double(), self.statistics.num_images
        means = _whitened(self.familiarity._factors[0], self.statistics.means)
        apart, length = seen - means[labels], to_class[rows, labels]
        gain = _gain(counts, num_images, length)
        along = (apart * seen).sum(1, keepdim=True) - apart @ means.T
        to_class = to_class + gain[:, None] * along.square()
        to_class[rows, labels] = (counts / (counts - 1)).square() * (length + gain * length.square())
        every = torch.tensor(float(num_images), dtype=torch.float64)
        to_all = (every / (every - 1)).square() * (to_all + _gain(every, num_images, to_all) * to_all.square())
        similarity, of_turned = self.features[positions] @ self.features.T, self.turned[positions] @ self.turned.T
        similarity[rows, positions] = of_turned[rows, positions] = -2
        learned = self._measures(self.solved.scores, to_class, to_all, similarity, of_turned)
        is_same = self.labels[None] == labels[:, None]
        scores = self.solved.scores.clone()
        scores[rows, labels], to_class[rows, labels] = -torch.inf, torch.inf
        others = (part.masked_fill(is_same, -2) for part in (similarity, of_turned))
        return learned, self._measures(scores, to_class, to_all, *others)


def measured(photos: Photos, num_known: int, count: int, draw: int, far: Tensor) -> Cell:
    source = torch.Generator().manual_seed(1000 * draw + count)
    order = torch.randperm(int(photos.labels.max()) + 1, generator=source).tolist()
    learned, asked = [], []
    for label in order[:num_known]:
        members = (photos.labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=source)]
        asked.append(members[:NUM_TEST])
        learned.append(members[NUM_TEST:][:count])
    labels = torch.repeat_interleave(torch.arange(num_known), torch.tensor([len(part) for part in learned]))
    near = photos.features[torch.isin(photos.labels, torch.tensor(order[num_known:]))]
    near = near[torch.randperm(len(near), generator=source)[:1000]]
    known = Known(photos.features[torch.cat(learned)], labels)
    groups = (photos.features[torch.cat(asked)], near, far)
    return Cell(*known.left_out(), *(known.measures(group) for group in groups))


def scored(cell: Cell) -> dict[str, list[Tensor]]:
    """For each candidate, the scores of learned photos (leave-one-out), and of known, near and far photos."""
    mean, deviation = cell.learned.mean(1, keepdim=True), cell.learned.std(1, keepdim=True).clamp_min(1e-6)
    values = [(part - mean) / deviation for part in (cell.learned, cell.known, cell.near, cell.far)]
    found = {}
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(len(MEASURES)), size):
            name, rows = " + ".join(MEASURES[k] for k in chosen), list(chosen)
            found[f"{name}, standardised" if size > 1 else name] = [part[rows].mean(0) for part in values]
            if size > 1:
                found[f"{name}, shares"] = [torch.special.log_ndtr(part[rows]).mean(0) for part in values]
    from sklearn.linear_model import LogisticRegression

    rows = list(FITTED)
    foreign = ((cell.foreign - mean) / deviation)[rows]
    is_known = [1] * cell.learned.shape[1] + [0] * foreign.shape[1]
    model = LogisticRegression().fit(torch.cat((values[0][rows], foreign), 1).T.numpy(), is_known)
    weight = torch.from_numpy(model.coef_[0])
    found["fitted"] = [weight @ part[rows] for part in values]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="FILE=KNOWN:COUNT,COUNT")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    asked = {Path(text.partition("=")[0]): text.partition("=")[2].split(":") for text in given.sets}
    photos = {file: Photos.read(file) for file in asked}
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for file, (num_known, counts) in asked.items():
        for count, draw in itertools.product(map(int, counts.split(",")), range(NUM_DRAWS)):
            source = torch.Generator().manual_seed(draw)
            others = [photos[other].features for other in asked if other != file]
            size = NUM_FAR // max(1, len(others))
            far = torch.cat([part[torch.randperm(len(part), generator=source)[:size]] for part in others])
            cell = f"{file.stem}, {count}"
            for name, scores in scored(measured(photos[file], int(num_known), count, draw, far)).items():
                learned, known, *strangers = scores
                limit, own = torch.quantile(known, REFUSED), torch.quantile(learned, REFUSED)
                shares[name][f"{cell}, known"].append(100 * float((known < own).double().mean()))
                for kind, part in zip(("near", "far"), strangers, strict=True):
                    shares[name][f"{cell}, {kind}"].append(100 * float((part < limit).double().mean()))
            print(cell, draw, flush=True)
    rows = {
        name: {cell: round(float(np.mean(draws)), 2) for cell, draws in row.items()} for name, row in shares.items()
    }
    cells = [cell for cell in rows[TODAY] if not cell.endswith("known")]
    order = sorted(rows, key=lambda name: -np.mean([rows[name][cell] for cell in cells]))
    print("strangers refused; cells ahead of today's, the worst difference; known photos refused, the most in a cell")
    for name in order:
        row = rows[name]
        ahead = [row[cell] - rows[TODAY][cell] for cell in cells]
        known = [value for cell, value in row.items() if cell.endswith("known")]
        mean = np.mean([row[cell] for cell in cells])
        print(
            f"{mean:5.1f}  {sum(value > 0 for value in ahead):2d} of {len(cells)}  {min(ahead):+6.1f}  "
            f"{np.mean(known):5.1f}  {max(known):5.1f}  {name}"
        )
    if given.out:
        given.out.write_text(json.dumps({name: rows[name] for name in order if name in KEPT}, indent=1) + "\n")


if __name__ == "__main__":
    main()
