"""Which of the new images are never trained on, and how many of them a class keeps."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from foster.data.herding import positions_by_class
from foster.data.images import ImageSet, ids_of
from foster.data.memory import ExemplarMemory

MIN_IMAGES = 3
"""A class with fewer images spares none."""


def position(image_hash: str) -> float:
    """Where a picture stands between 0 and 1 by the hash of its pixels: it keeps this position for life."""
    return int(image_hash, 16) / 16.0 ** len(image_hash)


def smallest_positions(images: ImageSet, ids: Sequence[str]) -> dict[int, float]:
    """For each class among `images`, the smallest position of its images."""
    smallest: dict[int, float] = {}
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        smallest[label] = min(smallest.get(label, 1.0), position(image_hash))
    return smallest


def is_held_out(
    images: ImageSet,
    ids: Sequence[str],
    share: float,
    trained_from: Mapping[int, float] | None = None,
    spared: Set[str] = frozenset(),
) -> Tensor:
    """A mask `[N]`: of a new class about `share`, at least one image of three or more and never all.

    The choice goes by the hash of the pixels, lowest first: it does not depend on file names, and equal pictures always
    stand on the same side. One that lies in several classes is held out where all of them choose it. `trained_from`
    holds, for every class of which photos were learned before, the smallest position of any that was trained on. Of
    such a class only pictures below that position, and below `share`, are held out: a photo that comes again is never
    measured on once it was trained on. Nor is it trained on once it is kept to be measured on: `spared` are the
    pictures that are held out whatever their class, even all of them.
    """
    members: dict[int, set[str]] = defaultdict(set)
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        members[label].add(image_hash)
    trained: set[str] = set()
    for label, hashes in members.items():
        others = hashes - spared
        trained |= others - _chosen(others, share, (trained_from or {}).get(label))
    return torch.tensor([image_hash not in trained for image_hash in ids], dtype=torch.bool)


def _chosen(hashes: Set[str], share: float, trained_from: float | None) -> set[str]:
    """Those of one class's different pictures that it would hold out."""
    if share == 0 or len(hashes) < MIN_IMAGES:
        return set()
    count = max(1, round(len(hashes) * share))
    if trained_from is not None:
        count = sum(position(image_hash) < min(share, trained_from) for image_hash in hashes)
    return set(sorted(hashes)[: min(count, len(hashes) - 1)])


def held_out_quota(quota: int | None, share: float) -> int | None:
    """How many of the `quota` images that a class may keep are held out; None for no limit."""
    if share == 0:
        return 0
    if quota is None:
        return None
    return min(max(1, round(quota * share)), quota - 1)


def fair_quota(total: int, trained: Sequence[int], held_out: Sequence[int], share: float) -> int:
    """How many images each class may keep of `total`, with so many of each class to train on and to hold out: what
    small classes cannot fill goes to the others."""

    def num_kept(quota: int) -> int:
        spared = held_out_quota(quota, share) or 0
        return sum(min(count, quota - spared) for count in trained) + sum(min(count, spared) for count in held_out)

    # The more a class may keep, the more is kept in all.
    candidates = range(total // len(trained), total + 1)
    return candidates[max(0, bisect_right(candidates, total, key=num_kept) - 1)]


def kept_held_out(images: ImageSet, quota: int | None) -> ExemplarMemory:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    memory, ids = ExemplarMemory(), ids_of(images.stack)
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        by_hash = {ids[position]: position for position in positions.tolist()}
        chosen = [by_hash[entry] for entry in sorted(by_hash)][:quota]
        memory.remember(class_id, images.stack[torch.tensor(chosen, dtype=torch.int64)])
    return memory
