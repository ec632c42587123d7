"""Starts the kernel that crops photos of many sizes, where Triton and a GPU are there."""

import functools
import importlib

import torch
from torch import Tensor

BLOCK = 256
"""Pixels of one program: a row of a training image and a little more, so that its reads lie near each other."""


@functools.cache
def can_crop() -> bool:
    """Whether the kernel can run: it needs Triton and a GPU."""
    if not torch.cuda.is_available():
        return False
    try:
        importlib.import_module("foster.kernels.device.photos")
    except (ImportError, AttributeError):
        return False
    return True


def crop_and_resize(addresses: Tensor, boxes: Tensor, out_size: tuple[int, int]) -> Tensor:
    """uint8 `[n, 3, *out_size]` on the GPU that holds the photos; arguments as in `device/photos.py`."""
    from foster.kernels.device import photos

    height, width = out_size
    output = torch.empty((len(addresses), 3, height, width), dtype=torch.uint8, device=addresses.device)
    if len(addresses):
        grid = len(addresses), -(-height * width // BLOCK)
        with torch.cuda.device(addresses.device):
            photos.crop_and_resize[grid](addresses, boxes, output, height * width, height, width, block=BLOCK)
    return output
