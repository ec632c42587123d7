"""For which 3x3 convolutions there are kernels, and where.

For 3 to 64 channels the library's kernels take five to fifteen times as long as moving the data would. These take
bfloat16 maps, channels last, and weights of any floating type: there is no cast to wait for. They sum in float32.
"""

import functools
import importlib
from collections.abc import Sequence

import torch

IN_CHANNELS = (3, 16, 32, 64)
OUT_CHANNELS = (16, 32, 64)
STRIDES = (1, 2)


def is_available() -> bool:
    """Whether the kernels can run on the current GPU: it needs bfloat16 tensor cores, and a Triton that has Gluon."""
    return torch.cuda.is_available() and _runs_on(torch.cuda.current_device())


@functools.cache
def _runs_on(gpu: int) -> bool:
    if torch.version.hip or torch.cuda.get_device_capability(gpu) < (8, 0):
        return False
    try:
        importlib.import_module("foster.kernels.device")
    except (ImportError, AttributeError):
        return False
    return True


def supports(image_shape: Sequence[int], weight_shape: Sequence[int], stride: int = 1) -> bool:
    """Whether there is a kernel for images [N, in, H, W] and a weight [out, in, 3, 3], padding 1."""
    out_channels, in_channels, *window = weight_shape
    num_images, image_channels, height, width = image_shape
    is_known = in_channels in IN_CHANNELS and out_channels in OUT_CHANNELS and stride in STRIDES and window == [3, 3]
    # The kernels count elements in 32 bits.
    return (
        is_known
        and image_channels == in_channels
        and 0 < num_images * height * width * max(out_channels, in_channels) < 2**31
    )
