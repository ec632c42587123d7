"""What is remembered of photos behind a frozen backbone (features of some, sums over all), and the head from it."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foster.bundle.folder import BundleError
from foster.data.photos.decode import ID_LENGTH
from foster.learner.calibration import USUAL_SPREAD, spread_of
from foster.networks.heads import RootHead, unit_roots
from foster.networks.statistics import Statistics, discriminants_of_few, left_out_scores

ID_BYTES = ID_LENGTH // 2

SHRINKAGE = 0.5
"""Of the covariance of roots of features: results/notes/photo-heads.md."""

MOST_MEASURED = 2000
"""Of more photos, so many are measured, at most equally many of each class: more would hardly change the number."""

LEAST_MEASURED = 5
"""So many of each class are measured in any case."""

NOT_MEASURED, GONE = -1, -2
"""In the place of an answer: the photo was not measured; or it was taken for a class that has been forgotten since."""


def stored_features(features: Tensor) -> Tensor:
    """Features `[N, d]` as they are remembered and summed: roots of unit length, in half precision, on the CPU."""
    return unit_roots(features).half().cpu()


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Photos in the order in which they were learned, by id and class; the features of some; sums over all.

    The sums are of the features as they are stored, so that a photo whose features are kept can be taken out of them
    exactly. Nothing is changed in place: every verb returns a new store.
    """

    ids: tuple[str, ...]
    """The id of each photo (the start of the hash of its pixels), N in all."""
    labels: Tensor
    """The class id of each photo, int64 `[N]`."""
    answers: Tensor
    """What each photo was taken for when it was last measured, int64 `[N]`; NOT_MEASURED or GONE."""
    rows: Tensor
    """Which of the photos have their features kept, int64 `[M]`, ascending."""
    features: Tensor
    """The features of these, float16 `[M, d]`."""
    statistics: Statistics

    @classmethod
    def empty(cls, num_features: int) -> "FeatureStore":
        nothing = torch.empty(0, dtype=torch.int64)
        features = torch.empty(0, num_features, dtype=torch.float16)
        return cls((), nothing, nothing, nothing, features, Statistics.empty(0, num_features))

    @property
    def num_photos(self) -> int:
        return len(self.ids)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors().values())

    @property
    def kept_labels(self) -> Tensor:
        """The class ids of the photos whose features are kept, `[M]`."""
        return self.labels[self.rows]

    @property
    def kept_ids(self) -> tuple[str, ...]:
        return tuple(self.ids[k] for k in self.rows.tolist())

    def entries(self) -> set[tuple[int, str]]:
        """Class id and photo id of all photos."""
        return set(zip(self.labels.tolist(), self.ids, strict=True))

    def added(
        self, features: Tensor, labels: Tensor, ids: Sequence[str], num_classes: int, per_class: int
    ) -> "FeatureStore":
        """With new photos of stored features `[n, d]`; those of the first `per_class` photos of each class are kept."""
        statistics = self.statistics.grown(num_classes - self.statistics.num_classes).added(features, labels)
        counts = torch.bincount(self.kept_labels, minlength=num_classes).tolist()
        is_kept = []
        for label in labels.tolist():
            is_kept.append(counts[label] < per_class)
            counts[label] += 1
        chosen = torch.tensor(is_kept, dtype=torch.bool)
        positions = torch.arange(len(labels)) + self.num_photos
        return FeatureStore(
            (*self.ids, *ids),
            torch.cat((self.labels, labels)),
            torch.cat((self.answers, torch.full_like(labels, NOT_MEASURED))),
            torch.cat((self.rows, positions[chosen])),
            torch.cat((self.features, features[chosen])),
            statistics,
        )

    def with_answers(self, positions: Tensor, answers: Tensor) -> "FeatureStore":
        """What the photos at `positions` are taken for now; what was said of others is forgotten."""
        known = torch.full_like(self.answers, NOT_MEASURED)
        known[positions] = answers
        return replace(self, answers=known)

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "FeatureStore":
        """A class for each group of present ones; nothing is left of classes in no group.

        Where the features of all photos of such a class are kept, the sums become exactly those of the others.
        """
        new_ids = torch.full((self.statistics.num_classes,), GONE, dtype=torch.int64)
        for new, group in enumerate(groups):
            new_ids[list(group)] = new
        statistics, order = self.statistics, list(range(self.statistics.num_classes))
        for gone in (new_ids < 0).nonzero()[:, 0].tolist():
            features = self.features[self.kept_labels == gone]
            is_whole = len(features) == int(self.statistics.counts[gone])
            statistics = statistics.without(order.index(gone), features if is_whole else None)
            order.remove(gone)
        statistics = statistics.regrouped([[order.index(k) for k in group] for group in groups])
        answers = torch.where(self.answers < 0, self.answers, new_ids[self.answers.clamp_min(0)])
        store = replace(self, labels=new_ids[self.labels], answers=answers, statistics=statistics)
        return store._rows_where(store.labels >= 0)

    def without(self, entries: set[tuple[int, str]]) -> "FeatureStore":
        """Without some photos, by class id and photo id. Those whose features are not kept stay in the sums."""
        is_meant = torch.tensor([entry in entries for entry in zip(self.labels.tolist(), self.ids, strict=True)])
        is_taken = torch.zeros_like(is_meant)
        is_taken[self.rows] = is_meant[self.rows]
        is_chosen = is_meant[self.rows]
        empty = Statistics.empty(self.statistics.num_classes, self.num_features)
        taken = empty.added(self.features[is_chosen], self.kept_labels[is_chosen])
        return replace(self, statistics=less(self.statistics, taken))._rows_where(~is_taken)

    def _rows_where(self, is_kept: Tensor) -> "FeatureStore":
        """The photos where `is_kept` `[N]`; the sums as they are."""
        positions = is_kept.cumsum(0) - 1
        is_chosen = is_kept[self.rows]
        return replace(
            self,
            ids=tuple(one for one, kept in zip(self.ids, is_kept.tolist(), strict=True) if kept),
            labels=self.labels[is_kept],
            answers=self.answers[is_kept],
            rows=positions[self.rows[is_chosen]],
            features=self.features[is_chosen],
        )

    def tensors(self) -> dict[str, Tensor]:
        """For a bundle's file."""
        ids = torch.frombuffer(bytearray(bytes.fromhex("".join(self.ids))), dtype=torch.uint8) if self.ids else None
        return {
            "ids": (torch.empty(0, dtype=torch.uint8) if ids is None else ids).view(-1, ID_BYTES),
            "labels": self.labels.int(),
            "answers": self.answers.int(),
            "rows": self.rows,
            "features": self.features,
            "counts": self.statistics.counts,
            "sums": self.statistics.sums,
            "second_moment": self.statistics.second_moment,
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], num_classes: int, title: str) -> "FeatureStore | None":
        """What `tensors` gave; None where there is nothing, BundleError where it does not fit together."""
        if not tensors:
            return None
        try:
            ids = [bytes(row).hex() for row in tensors["ids"].tolist()]
            labels, answers = tensors["labels"].long(), tensors["answers"].long()
            rows, features = tensors["rows"], tensors["features"]
            statistics = Statistics(tensors["counts"], tensors["sums"], tensors["second_moment"])
            fits = (
                tensors["ids"].shape == (len(ids), ID_BYTES)
                and labels.shape == answers.shape == (len(ids),)
                and (features.ndim, len(rows)) == (2, len(features))
                and features.shape[1] == statistics.num_features
                and statistics.num_classes == num_classes
                and _is_within(labels, 0, num_classes)
                and _is_within(answers, GONE, num_classes)
                and _is_within(rows, 0, len(ids))
                and bool((statistics.counts >= 0).all())
                and (features.dtype, rows.dtype) == (torch.float16, torch.int64)
                and statistics.sums.dtype == statistics.second_moment.dtype == torch.float64
            )
        except (KeyError, ValueError, TypeError, RuntimeError):
            fits = False
        if not fits:
            raise BundleError(f"the features in bundle '{title}' do not fit its classes")
        return cls(tuple(ids), labels, answers, rows, features, statistics)


def less(whole: Statistics, part: Statistics) -> Statistics:
    """The sums over the images of `whole` that are not in `part`."""
    return Statistics(whole.counts - part.counts, whole.sums - part.sums, whole.second_moment - part.second_moment)


def _is_within(values: Tensor, first: int, end: int) -> bool:
    return not len(values) or (int(values.min()) >= first and int(values.max()) < end)


def linear_discriminants(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Weight `[C, d]` and bias `[C]`, float64, of shrunk linear discriminants, corrected for classes of few photos."""
    return discriminants_of_few(statistics, SHRINKAGE)


@dataclass(frozen=True, eq=False)
class Solved:
    """A head, and the scores of photos by heads without them (leave-one-out)."""

    head: RootHead
    positions: Tensor
    """Which of the photos given were measured, int64 `[n]`."""
    scores: Tensor
    """Their scores `[n, C]`, on the scale of the head."""


def solve(
    statistics: Statistics, features: Tensor, labels: Tensor, ids: tuple[str, ...], scale: float | None = None
) -> Solved:
    """The head that follows from `statistics`, which include the photos of stored `features` `[n, d]`; each of these is
    measured by the head of all other photos. A photo without another one of its class is not measured.

    Scores are divided by a `scale`. By default those of left-out photos get the usual spread: then a temperature of 1
    is a good guess.
    """
    positions = _measured(labels, ids, statistics.num_classes)
    scores, is_judged = left_out_scores(statistics, SHRINKAGE, features[positions], labels[positions])
    positions, scores = positions[is_judged], scores[is_judged]
    weight, bias = linear_discriminants(statistics)
    weight, bias = weight - weight.mean(0), bias - bias.mean()
    if scale is None or not scale > 0:
        scale = spread_of(scores) / USUAL_SPREAD if len(scores) else 0.0
    if not scale > 0:
        scale = float(weight.norm()) or 1.0
    head = RootHead.from_values((weight / scale).float(), (bias / scale).float())
    return Solved(head, positions, (scores / scale).float())


def scale_of(statistics: Statistics, head: RootHead) -> float:
    """What the scores of a head were divided by that followed from these statistics."""
    weight, _ = linear_discriminants(statistics)
    return float((weight - weight.mean(0)).norm()) / max(float(head.weight.detach().norm()), 1e-12)


def _measured(labels: Tensor, ids: tuple[str, ...], num_classes: int) -> Tensor:
    """Positions of up to MOST_MEASURED photos, those with the smallest ids of each class, ascending."""
    sizes = torch.bincount(labels, minlength=num_classes)
    # What small classes leave goes to the others.
    quotas = range(MOST_MEASURED + 1)
    quota = bisect_right(quotas, MOST_MEASURED, key=lambda most: int(sizes.clamp_max(most).sum())) - 1
    quota = max(LEAST_MEASURED, quota)
    counts = [0] * num_classes
    chosen: list[int] = []
    for position in sorted(range(len(ids)), key=lambda k: ids[k]):
        label = int(labels[position])
        counts[label] += 1
        if counts[label] <= quota:
            chosen.append(position)
    return torch.tensor(sorted(chosen), dtype=torch.int64)
