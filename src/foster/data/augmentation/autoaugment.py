"""AutoAugment: one of 25 sub-policies for each image, with two operations, each with a probability and a random sign.

The policies are those of the paper (Cubuk et al., 2019) for CIFAR-10 and for ImageNet, with the magnitudes of the
public PyTorch port that FOSTER used.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from foster.data.augmentation.operations import OPERATIONS, Work, by_kernel, by_pillow

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
    """The operations of each image; both `[N, 2]`."""

    operations: NDArray[np.int64]  # positions in OPERATIONS, or -1 for nothing
    magnitudes: NDArray[np.float64]  # with sign

    def part(self, images: slice) -> "Decisions":
        return Decisions(self.operations[images], self.magnitudes[images])


def draw(policy: str, num_images: int, generator: torch.Generator) -> Decisions:
    names = list(OPERATIONS)
    flat = [operation for sub_policy in POLICIES[policy] for operation in sub_policy]
    operations = np.array([names.index(name) for name, _, _ in flat])
    probabilities = np.array([probability for _, probability, _ in flat])
    magnitudes = np.array([MAGNITUDES[name][index] for name, _, index in flat])
    is_signed = np.array([name in SIGNED for name, _, _ in flat])
    sub_policies = torch.randint(len(POLICIES[policy]), (num_images, 1), generator=generator).numpy()
    coins = torch.rand(num_images, NUM_SLOTS, dtype=torch.float64, generator=generator).numpy()
    is_negative = torch.randint(2, (num_images, NUM_SLOTS), generator=generator).numpy()
    chosen = sub_policies * NUM_SLOTS + np.arange(NUM_SLOTS)
    signs = 1 - 2 * (is_negative & is_signed[chosen])
    return Decisions(np.where(coins < probabilities[chosen], operations[chosen], -1), signs * magnitudes[chosen])


def works(decisions: Decisions, height: int, width: int, has_kernels: bool) -> Sequence[Work]:
    """The work for images of this size: with kernels, one for each of the two operations; otherwise one for both."""
    operations, magnitudes = decisions
    if not has_kernels:
        return [Work((), lambda images: by_pillow(images, operations.tolist(), magnitudes.tolist()))]
    return [by_kernel(operations[:, slot], magnitudes[:, slot], height, width) for slot in range(NUM_SLOTS)]
