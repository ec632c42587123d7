"""Which of the new images are never trained on, and how many of them a class keeps."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from foster.bundle.folder import image_id
from foster.data.herding import positions_by_class
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory

MIN_IMAGES = 3
"""A class with fewer images spares none."""


def place(image_hash: str) -> float:
    """Where a picture stands between 0 and 1 by the hash of its pixels: it keeps this place for life."""
    return int(image_hash, 16) / 16.0 ** len(image_hash)


def smallest_places(images: ImageSet, ids: Sequence[str]) -> dict[int, float]:
    """For each class among `images`, the smallest place of its images."""
    found: dict[int, float] = {}
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        found[label] = min(found.get(label, 1.0), place(image_hash))
    return found


def is_held_out(
    images: ImageSet, ids: Sequence[str], share: float, trained_from: Mapping[int, float] | None = None
) -> Tensor:
    """A mask `[N]`: of a new class about `share`, at least one image of three or more and never all.

    The choice goes by the hash of the pixels, lowest first: it does not depend on file names or on what else is
    learned, and equal pictures of a class always stand on the same side. `trained_from` holds, for every known class,
    the smallest place of any image of it that was trained on. Of a known class only pictures below that place, and
    below `share`, are held out: a photo that comes again is never measured on once it was trained on.
    """
    mask = torch.zeros(len(images), dtype=torch.bool)
    if share == 0:
        return mask
    members: dict[int, list[int]] = defaultdict(list)
    for position, label in enumerate(images.labels.tolist()):
        members[label].append(position)
    for label, positions in members.items():
        different = sorted({ids[position] for position in positions})
        if len(different) < MIN_IMAGES:
            continue
        count = max(1, round(len(different) * share))
        if trained_from and label in trained_from:
            count = sum(place(image_hash) < min(share, trained_from[label]) for image_hash in different)
        chosen = set(different[: min(count, len(different) - 1)])
        mask[[position for position in positions if ids[position] in chosen]] = True
    return mask


def held_out_quota(quota: int | None, share: float) -> int | None:
    """How many of the `quota` images that a class may keep are held out; None for no limit."""
    if share == 0:
        return 0
    if quota is None:
        return None
    return min(max(1, round(quota * share)), quota - 1)


def kept_held_out(images: ImageSet, quota: int | None) -> ExemplarMemory:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    memory = ExemplarMemory()
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        by_hash = {image_id(images.images[position]): int(position) for position in positions}
        chosen = [by_hash[entry] for entry in sorted(by_hash)][:quota]
        memory.remember(class_id, images.images[chosen])
    return memory
