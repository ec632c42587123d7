"""Starts the kernels for uint8 images: crops of photos of different sizes, and AutoAugment's operations. They need a
GPU and Triton."""

import functools
import importlib

import torch
from torch import Tensor

CROPPED_BLOCK = 256
"""Output pixels of one program of the crop kernel: about one row of a training image, so that it reads pixels that are
close together."""

COLUMNS = 7
"""Columns of `choices`: the operation and its integer parameters."""

BLOCK = 1024
"""Pixels of one program of the kernel `change`."""

MEASURED_AT_ONCE = 4096
"""Pixels that the kernel `measure` reads at a time."""


@functools.cache
def can_crop() -> bool:
    """Whether the kernels can run: they need Triton and a GPU."""
    if not torch.cuda.is_available():
        return False
    try:
        importlib.import_module("foster.kernels.device.photos")
    except (ImportError, AttributeError):
        return False
    return True


def crop_and_resize(addresses: Tensor, boxes: Tensor, out_size: tuple[int, int]) -> Tensor:
    """Crops of photos, resized to `out_size`: uint8 `[n, 3, *out_size]` on the GPU of the photos.

    The arguments are those of `device/photos.py`.
    """
    from foster.kernels.device import photos

    height, width = out_size
    output = torch.empty((len(addresses), 3, height, width), dtype=torch.uint8, device=addresses.device)
    if len(addresses):
        grid = len(addresses), -(-height * width // CROPPED_BLOCK)
        with torch.cuda.device(addresses.device):
            photos.crop_and_resize[grid](addresses, boxes, output, height * width, height, width, block=CROPPED_BLOCK)
    return output


def can_operate(images: Tensor) -> bool:
    """Whether the kernels can run on these images. Without them, Pillow gives the same pixels."""
    return images.is_cuda and can_crop()


def operate(images: Tensor, choices: Tensor, numbers: Tensor, is_measuring: bool = True) -> Tensor:
    """Apply one operation to each image; images and result are uint8 `[n, 3, H, W]`.

    The arguments are those of `device/operations.py`. `is_measuring` False skips the kernel `measure`; then no
    operation may need a lookup table or the mean of its image.
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
