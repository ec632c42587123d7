"""Memories of given images."""

from collections.abc import Sequence

import torch
from torch import Tensor

from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing


def memory_of(stacks: Sequence[Sequence[Tensor]], resizing: Resizing) -> ExemplarMemory:
    """A memory without a limit that holds these images `[3, H, W]`, a list for each class id."""
    memory = ExemplarMemory()
    for class_id, images in enumerate(stacks):
        empty = torch.empty(0, 3, *resizing.size, dtype=torch.uint8)
        memory.remember(class_id, torch.stack(list(images)) if images else empty)
    return memory
