"""AutoAugment: one of 25 sub-policies for each image, with two operations, each with a probability and a random sign.

The policies are those of the paper (Cubuk et al., 2019) for CIFAR-10 and for ImageNet, with the magnitudes of the
public PyTorch port that FOSTER used.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.augmentation.operations import FAMILIES, OPERATIONS, Change, Work, by_kernel

NUM_SLOTS = 2

# The magnitudes of the indices 0 to 9. An operation without magnitude has zeros.
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

# Operations whose magnitude is negated with probability 1/2.
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
    """The operations of each image; both `[N, 2]` on the CPU."""

    operations: Tensor  # int64: position in OPERATIONS, or -1 for nothing
    magnitudes: Tensor  # float64, with sign

    def part(self, images: slice | NDArray[np.int64]) -> "Decisions":
        return Decisions(self.operations[images], self.magnitudes[images])


class _PolicyTable(NamedTuple):
    """A policy as flat arrays `[25 * 2]`. `magnitudes` `[2 * 25 * 2]` has positive signs first, then negative ones."""

    operations: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    magnitudes: NDArray[np.float64]


@cache
def _policy_table(policy: str) -> _PolicyTable:
    names = list(OPERATIONS)
    operations = [operation for sub_policy in POLICIES[policy] for operation in sub_policy]
    magnitudes = [MAGNITUDES[name][index] for name, _, index in operations]
    signs = [-1 if name in SIGNED else 1 for name, _, _ in operations]
    return _PolicyTable(
        operations=np.array([names.index(name) for name, _, _ in operations]),
        probabilities=np.array([probability for _, probability, _ in operations]),
        magnitudes=np.concatenate((magnitudes, np.multiply(magnitudes, signs))),
    )


def draw(policy: str, num_images: int, generator: torch.Generator) -> Decisions:
    """Draw the decisions of a policy for `num_images` images."""
    table = _policy_table(policy)
    num_operations = len(table.operations)
    sub_policies = torch.randint(num_operations // NUM_SLOTS, (num_images, 1), generator=generator).numpy()
    coins = torch.rand(num_images, NUM_SLOTS, dtype=torch.float64, generator=generator).numpy()
    is_negative = torch.randint(2, (num_images, NUM_SLOTS), generator=generator).numpy()
    chosen = sub_policies * NUM_SLOTS + np.arange(NUM_SLOTS)
    operations = np.where(coins < table.probabilities.take(chosen), table.operations.take(chosen), -1)
    magnitudes = table.magnitudes.take(chosen + num_operations * is_negative)
    return Decisions(torch.from_numpy(operations), torch.from_numpy(magnitudes))


def works(decisions: Decisions, height: int, width: int, has_kernels: bool) -> Sequence[Work]:
    """The work for images of this size: with kernels, one for each of the two operations; otherwise one for both."""
    if not has_kernels:
        return [plan(decisions, height, width)]
    operations, magnitudes = (values.numpy() for values in decisions)
    return [by_kernel(operations[:, slot], magnitudes[:, slot], height, width) for slot in range(NUM_SLOTS)]


class _Pass(NamedTuple):
    """One family of operations, applied to its images."""

    change: Change
    positions: NDArray[np.int64]  # of its images, grouped by operation
    counts: list[int]  # the number of images of each operation
    parameters: NDArray[Any]


def plan(decisions: Decisions, height: int, width: int) -> Work:
    """The work without kernels: each family is applied to all of its images at once, first operations first."""
    operations, magnitudes = (values.numpy().T for values in decisions)
    passes = [
        family_pass
        for slot in range(NUM_SLOTS)
        for family_pass in _passes(operations[slot], magnitudes[slot], height, width)
    ]
    arrays = [array for family_pass in passes for array in (family_pass.positions, family_pass.parameters)]

    def change(images: Tensor, *tensors: Tensor) -> Tensor:
        images = images.clone(memory_format=torch.contiguous_format)
        for family_pass, positions, parameters in zip(passes, tensors[::2], tensors[1::2], strict=True):
            members = images.index_select(0, positions)
            family_pass.change(members, family_pass.counts, parameters)
            images.index_copy_(0, positions, members)
        return images

    return Work(arrays, change)


def _passes(operations: NDArray[np.int64], magnitudes: NDArray[np.float64], height: int, width: int) -> Iterator[_Pass]:
    """The passes for one operation of each image; families without images have none."""
    numbers = itertools.count()
    for family in FAMILIES:
        members = [np.flatnonzero(operations == next(numbers)) for _ in family.operations]
        rows = [
            operation.prepare(magnitudes[where], height, width)
            for operation, where in zip(family.operations, members, strict=True)
            if len(where)
        ]
        if rows:
            counts = [len(where) for where in members]
            yield _Pass(family.change, np.concatenate(members), counts, np.concatenate(rows))
