"""Which of the new images are never trained on, and how many of them a class keeps."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from foster.bundle.folder import image_id
from foster.data.herding import positions_by_class
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory

MIN_IMAGES = 3
"""A class with fewer images spares none."""


def is_held_out(images: ImageSet, ids: Sequence[str], share: float) -> Tensor:
    """A mask `[N]`: about `share` of each class, at least one image of a class with three or more, and never all.

    The choice goes by the hash of the pixels: it does not depend on file names or on what else is learned, and equal
    pictures always stand on the same side.
    """
    mask = torch.zeros(len(images), dtype=torch.bool)
    if share == 0:
        return mask
    members: dict[int, list[int]] = defaultdict(list)
    for position, label in enumerate(images.labels.tolist()):
        members[label].append(position)
    for positions in members.values():
        different = sorted({ids[position] for position in positions})
        if len(different) < MIN_IMAGES:
            continue
        count = min(max(1, round(len(different) * share)), len(different) - 1)
        chosen = set(different[:count])
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
