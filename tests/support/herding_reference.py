"""Herding written out, and features to herd by."""

import numpy as np
import torch
from torch import Tensor

from foster.data.herding import herding_by_class
from foster.data.images import Stack, as_stack


def greedy_reference(features: np.ndarray, count: int) -> list[int]:
    """Herding one candidate at a time, as the definition reads."""
    vectors = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-8)
    mean = vectors.mean(axis=0)
    chosen: list[int] = []
    total = np.zeros_like(mean)
    for k in range(1, min(count, len(vectors)) + 1):
        best, best_distance = -1, np.inf
        for candidate, vector in enumerate(vectors):
            distance = np.linalg.norm(mean - (total + vector) / k)
            if candidate not in chosen and distance < best_distance:
                best, best_distance = candidate, distance
        chosen.append(best)
        total = total + vectors[best]
    return chosen


def herding(features: Tensor, count: int) -> Tensor:
    """The positions that are chosen where all features are of one class."""
    return herding_by_class(features, torch.zeros(len(features), dtype=torch.int64), [0], count)[0]


def random_features(num: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu().to(dtype)


def pixels(images: Stack | Tensor) -> Tensor:
    return as_stack(images).tensor[:, 0].flatten(1).float()
