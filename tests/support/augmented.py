"""AutoAugment's operations done to images at once, as the pipeline does them bit by bit."""

import torch
from torch import Tensor

from foster.data.augmentation.autoaugment import Decisions, plan
from foster.data.augmentation.operations import OPERATIONS, send


def operated(name: str, images: Tensor, magnitudes: Tensor) -> Tensor:
    """Images `[n, 3, H, W]` uint8 after one operation with signed magnitudes `[n]` float64 on the CPU."""
    images, operation = images.clone(memory_format=torch.contiguous_format), OPERATIONS[name]
    family = [member for member, other in OPERATIONS.items() if other.change is operation.change]
    counts = [len(images) * (member == name) for member in family]
    parameters = operation.prepare(magnitudes.double().numpy(), *images.shape[2:])
    operation.change(images, counts, *send([parameters], images.device))
    return images


def decided(images: Tensor, decisions: Decisions) -> Tensor:
    """Images `[n, 3, H, W]` uint8 with each image's first operation applied, then its second."""
    work = plan(decisions, *images.shape[2:])
    return work.change(images, *send(work.arrays, images.device))
