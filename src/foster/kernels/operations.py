"""Starts the kernels of AutoAugment's operations, where Triton and a GPU are there."""

import torch
from torch import Tensor

from foster.kernels.photos import can_crop

COLUMNS = 7
"""Of `choices`: an operation and the integers that it takes."""

BLOCK = 1024
"""Pixels of one program that changes them."""

MEASURED_AT_ONCE = 4096
"""Pixels that are counted at a time."""


def can_operate(images: Tensor) -> bool:
    """Whether the kernels can run on these images; elsewhere torch's own operations give the same pixels."""
    return images.is_cuda and can_crop()


def operate(images: Tensor, choices: Tensor, numbers: Tensor, is_measuring: bool = True) -> Tensor:
    """Images uint8 `[n, 3, H, W]` with each image's own operation done to it; arguments as in `device/operations.py`.

    Unless it `is_measuring`, none of the operations may need a table or the mean of its image.
    """
    from foster.kernels import device

    images = images.contiguous()
    output = torch.empty_like(images)
    num_images, _, height, width = images.shape
    size = height * width
    tables = torch.empty((num_images, 3, 256), dtype=torch.uint8, device=images.device)
    means = torch.empty(num_images, dtype=torch.int32, device=images.device)
    if not images.numel():
        return output
    kernels = device.operations
    with torch.cuda.device(images.device):
        if is_measuring:
            block = min(MEASURED_AT_ONCE, 1 << (size - 1).bit_length())
            grid = num_images, 3
            kernels.measure[grid](
                images, choices, tables, means, size, block=block, num_warps=8, enable_fp_fusion=False
            )
        grid = num_images, -(-size // BLOCK)
        arguments = images, choices, numbers, tables, means, output, size, height, width
        kernels.change[grid](*arguments, block=BLOCK, num_warps=8, enable_fp_fusion=False)
    return output
