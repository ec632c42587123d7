"""The features of some learned photos by a frozen backbone, and sums over the features of all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import torch
from torch import Tensor

from foster.bundle.folder import BundleError
from foster.data.photos.decode import ID_LENGTH
from foster.networks.statistics import Statistics

ID_BYTES = ID_LENGTH // 2

NOT_MEASURED, GONE = -1, -2
"""Values in place of an answer: the photo was not measured, or its answer was a class that has been forgotten since."""

Entry = tuple[int, str]
"""A photo in a class: the class id, and the hash of the pixels."""


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Photos in the order in which they were learned, by id and class; the features of some; sums over all.

    The sums are of the features as they are stored, so that a photo whose features are kept can be subtracted
    exactly. Nothing is changed in place: every method returns a new store.
    """

    ids: tuple[str, ...]
    """The id of each photo (the start of the hash of its pixels), N in all."""
    labels: Tensor
    """The class id of each photo, int64 `[N]`."""
    answers: Tensor
    """The class id of the last answer for each photo, int64 `[N]`; or NOT_MEASURED or GONE."""
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
    def kept_labels(self) -> Tensor:
        """The class ids of the photos whose features are kept, `[M]`."""
        return self.labels[self.rows]

    @property
    def kept_ids(self) -> tuple[str, ...]:
        return tuple(map(self.ids.__getitem__, self.rows.tolist()))

    def entries(self) -> set[Entry]:
        """Class id and photo id of all photos."""
        return set(zip(self.labels.tolist(), self.ids, strict=True))

    def added(
        self, features: Tensor, labels: Tensor, ids: Sequence[str], num_classes: int, per_class: int
    ) -> "FeatureStore":
        """A store with new photos of stored features `[n, d]`. Of each class, old and new together, the features of
        `per_class` photos are kept."""
        statistics = self.statistics.grown(num_classes - self.statistics.num_classes).added(features, labels)
        all_labels = torch.cat((self.labels, labels))
        rows = torch.cat((self.rows, torch.arange(len(self.ids), len(all_labels))))
        all_ids = (*self.ids, *ids)
        chosen = with_smallest_ids(all_labels[rows], [all_ids[row] for row in rows.tolist()], per_class)
        return FeatureStore(
            all_ids,
            all_labels,
            torch.cat((self.answers, torch.full_like(labels, NOT_MEASURED))),
            rows[chosen],
            torch.cat((self.features, features))[chosen],
            statistics,
        )

    def measurable(self, newest: Tensor) -> tuple[Tensor, Tensor]:
        """The positions `[M]` and the features `[M, d]` of the photos whose features are kept. If none are kept, those
        of the photos that were added last, with features `newest`."""
        if len(self.rows):
            return self.rows, self.features
        return torch.arange(len(self.ids) - len(newest), len(self.ids)), newest

    def with_answers(self, positions: Tensor, answers: Tensor) -> "FeatureStore":
        """A store with `answers` for the photos at `positions`; all other photos become NOT_MEASURED."""
        known = torch.full_like(self.answers, NOT_MEASURED)
        known[positions] = answers
        return replace(self, answers=known)

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "FeatureStore":
        """One class for each group of present classes; classes in no group are removed.

        If the features of all photos of a removed class are kept, the sums become exactly those of the others.
        """
        new_ids = torch.full((self.statistics.num_classes,), GONE, dtype=torch.int64)
        for new, group in enumerate(groups):
            new_ids[list(group)] = new
        statistics = self.statistics
        for gone in (new_ids < 0).nonzero()[:, 0].tolist():
            is_its = self.kept_labels == gone
            if int(is_its.sum()) == int(statistics.counts[gone]):
                statistics = statistics.without(self.features[is_its], self.kept_labels[is_its])
        statistics = statistics.regrouped(groups)
        answers = torch.where(self.answers < 0, self.answers, new_ids[self.answers.clamp_min(0)])
        store = replace(self, labels=new_ids[self.labels], answers=answers, statistics=statistics)
        return store._rows_where(store.labels >= 0)

    def without(self, entries: set[Entry]) -> "FeatureStore":
        """Without some photos, given by class id and photo id. Those whose features are not kept stay in the sums."""
        is_meant = torch.tensor([entry in entries for entry in zip(self.labels.tolist(), self.ids, strict=True)])
        is_chosen = is_meant[self.rows]
        is_taken = torch.zeros_like(is_meant)
        is_taken[self.rows] = is_chosen
        statistics = self.statistics.without(self.features[is_chosen], self.kept_labels[is_chosen])
        return replace(self, statistics=statistics)._rows_where(~is_taken)

    def _rows_where(self, is_kept: Tensor) -> "FeatureStore":
        """The photos where `is_kept` `[N]` is true, with the same sums."""
        if bool(is_kept.all()):
            return self
        positions = is_kept.cumsum(0) - 1
        is_chosen = is_kept[self.rows]
        return replace(
            self,
            ids=tuple(compress(self.ids, is_kept.tolist())),
            labels=self.labels[is_kept],
            answers=self.answers[is_kept],
            rows=positions[self.rows[is_chosen]],
            features=self.features[is_chosen],
        )

    def tensors(self) -> dict[str, Tensor]:
        """The content of a bundle's file."""
        ids = np.frombuffer(bytearray.fromhex("".join(self.ids)), np.uint8)  # torch.frombuffer takes no empty buffer
        return {
            "ids": torch.from_numpy(ids).view(-1, ID_BYTES),
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
        """The store that `tensors` wrote; None if it is empty. Raises BundleError if its parts do not fit together."""
        if not tensors:
            return None
        try:
            digits = tensors["ids"].numpy().tobytes().hex()
            ids = [digits[k : k + ID_LENGTH] for k in range(0, len(digits), ID_LENGTH)]
            labels, answers = tensors["labels"].long(), tensors["answers"].long()
            rows, features = tensors["rows"], tensors["features"]
            statistics = Statistics(*(tensors[name] for name in ("counts", "sums", "second_moment")))
            fits = (
                tensors["ids"].shape == (len(ids), ID_BYTES)
                and labels.shape == answers.shape == (len(ids),)
                and (features.ndim, len(rows)) == (2, len(features))
                and features.shape[1] == statistics.num_features
                and statistics.num_classes == num_classes
                and _is_within(labels, 0, num_classes)
                and _is_within(answers, GONE, num_classes)
                and _is_within(rows, 0, len(ids))
                and (features.dtype, rows.dtype) == (torch.float16, torch.int64)
                and statistics.sums.dtype == statistics.second_moment.dtype == torch.float64
            )
        except (KeyError, ValueError, TypeError, RuntimeError):
            fits = False
        if not fits:
            raise BundleError(f"the features in bundle '{title}' do not fit its classes")
        return cls(tuple(ids), labels, answers, rows, features, statistics)


def with_smallest_ids(labels: Tensor, ids: Sequence[str], most: int) -> Tensor:
    """Positions of up to `most` photos of each class, ascending: those with the smallest ids, a sample that does not
    depend on the order of the photos."""
    classes, counts = labels.tolist(), Counter[int]()
    chosen = []
    for position in sorted(range(len(ids)), key=ids.__getitem__):
        counts[classes[position]] += 1
        if counts[classes[position]] <= most:
            chosen.append(position)
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def _is_within(values: Tensor, first: int, end: int) -> bool:
    return not len(values) or (int(values.min()) >= first and int(values.max()) < end)
