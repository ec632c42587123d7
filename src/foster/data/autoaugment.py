"""AutoAugment: for each image one of 25 sub-policies, and in it two operations, each with its own coin and sign.

The policies are those of the paper (Cubuk et al., 2019) for CIFAR-10 and for ImageNet, with the magnitudes of the
public PyTorch port that FOSTER used.
"""

from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from foster.data.operations import OPERATIONS, to_device

NUM_SLOTS = 2

# What the magnitude indices 0 to 9 mean. An operation without magnitude has zeros.
MAGNITUDES: dict[str, list[float]] = {
    "ShearX": np.linspace(0, 0.3, 10).tolist(),
    "ShearY": np.linspace(0, 0.3, 10).tolist(),
    "TranslateX": np.linspace(0, 150 / 331, 10).tolist(),
    "TranslateY": np.linspace(0, 150 / 331, 10).tolist(),
    "Rotate": np.linspace(0, 30, 10).tolist(),
    "Color": np.linspace(0, 0.9, 10).tolist(),
    "Sharpness": np.linspace(0, 0.9, 10).tolist(),
    "Brightness": np.linspace(0, 0.9, 10).tolist(),
    "Contrast": np.linspace(0, 0.9, 10).tolist(),
    "Posterize": np.linspace(8, 4, 10).round().tolist(),
    "Solarize": np.linspace(256, 0, 10).tolist(),
    "Invert": [0.0] * 10,
    "AutoContrast": [0.0] * 10,
    "Equalize": [0.0] * 10,
}

# Their magnitude is taken with a plus or a minus, by a fair coin for each image.
SIGNED = frozenset(
    ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Color", "Sharpness", "Brightness", "Contrast")
)

# Operation, probability and magnitude index, twice.
SubPolicy = tuple[tuple[str, float, int], tuple[str, float, int]]

POLICIES: dict[str, tuple[SubPolicy, ...]] = {
    "cifar10": (
        (("Invert", 0.1, 7), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, 8), ("Equalize", 0.9, 2)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, 5), ("Equalize", 0.5, 1)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, 7), ("AutoContrast", 0.4, 8)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, 3)),
        (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
        (("Equalize", 0.2, 8), ("Equalize", 0.6, 4)),
        (("Color", 0.9, 9), ("Equalize", 0.6, 6)),
        (("AutoContrast", 0.8, 4), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 3)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, 2), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, 8), ("Invert", 0.1, 3)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 1)),
    ),
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
        (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, 2)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, 8), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
        (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
        (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
        (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
        (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
        (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    ),
}


class Decisions(NamedTuple):
    """What happens to each image, drawn before any pixel is touched; both `[N, 2]` on the CPU."""

    operations: Tensor  # int64: position in OPERATIONS, or -1 for nothing
    magnitudes: Tensor  # float64, with sign

    def part(self, images: slice) -> "Decisions":
        return Decisions(self.operations[images], self.magnitudes[images])


class _PolicyTable(NamedTuple):
    """A policy as tensors `[25, 2]`."""

    operations: Tensor
    probabilities: Tensor
    magnitudes: Tensor
    is_signed: Tensor


@cache
def _policy_table(policy: str) -> _PolicyTable:
    names = list(OPERATIONS)
    steps = [step for sub_policy in POLICIES[policy] for step in sub_policy]
    columns = (
        torch.tensor([names.index(name) for name, _, _ in steps]),
        torch.tensor([probability for _, probability, _ in steps], dtype=torch.float64),
        torch.tensor([MAGNITUDES[name][index] for name, _, index in steps], dtype=torch.float64),
        torch.tensor([name in SIGNED for name, _, _ in steps]),
    )
    return _PolicyTable(*(column.view(-1, NUM_SLOTS) for column in columns))


def draw(policy: str, num_images: int, generator: torch.Generator) -> Decisions:
    """Decisions for `num_images` images by the named policy."""
    table = _policy_table(policy)
    chosen = torch.randint(len(table.operations), (num_images,), generator=generator)
    coins = torch.rand(num_images, NUM_SLOTS, dtype=torch.float64, generator=generator)
    is_negative = torch.randint(2, (num_images, NUM_SLOTS), generator=generator).bool() & table.is_signed[chosen]
    magnitudes = table.magnitudes[chosen]
    return Decisions(
        operations=torch.where(coins < table.probabilities[chosen], table.operations[chosen], -1),
        magnitudes=torch.where(is_negative, -magnitudes, magnitudes),
    )


def apply(images: Tensor, decisions: Decisions) -> Tensor:
    """Images `[N, 3, H, W]` uint8 with each image's first operation applied, then its second."""
    for slot in range(NUM_SLOTS):
        images = _apply_slot(images, decisions.operations[:, slot], decisions.magnitudes[:, slot])
    return images


def _apply_slot(images: Tensor, operations: Tensor, magnitudes: Tensor) -> Tensor:
    """One operation for each image: sorted by operation, so each group is a slice, then put back in place."""
    order = operations.argsort()
    positions = to_device(torch.stack((order, order.argsort())), images.device)
    magnitudes = to_device(magnitudes[order], images.device)
    ends = torch.bincount(operations + 1, minlength=len(OPERATIONS) + 1).cumsum(0).tolist()
    groups = [
        (operation, slice(first, last))
        for operation, (first, last) in zip(OPERATIONS.values(), pairwise(ends), strict=True)
        if first < last
    ]
    images = images.index_select(0, positions[0])
    for change, members in groupby(groups, key=lambda group: group[0].apply):
        family = list(members)
        whole = slice(family[0][1].start, family[-1][1].stop)
        parameters = torch.cat([operation.prepare(images[part], magnitudes[part]) for operation, part in family])
        images[whole] = change(images[whole], parameters)
    return images.index_select(0, positions[1])
