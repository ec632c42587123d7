"""CutMix within a training step, for distillation: teacher and student get the same mixed images.

Random numbers come from the device's default generator, so that a CUDA graph draws new ones in each replay. The i-th
image of a batch is mixed with the i-th from the end.
"""

import torch
from torch import Tensor


def cutmix(images: Tensor, share: float) -> Tensor:
    """Images `[N, C, H, W]`, of which about `share` have a rectangle of another image of the batch."""
    return torch.where(_rectangles(images, share), images.flip(0), images)


def _rectangles(images: Tensor, share: float) -> Tensor:
    """A mask, bool `[N, 1, H, W]`, with a rectangle in about `share` of the images.

    The rectangle has the aspect ratio of the image. Its area is uniform from 0 to that of the image, its centre is
    uniform over the image, and it is clipped to the image.
    """
    num_images, _, height, width = images.shape
    area, x, y, chosen = torch.rand(4, num_images, 1, device=images.device)
    half_side = area.sqrt() / 2
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    is_column = ((columns - x).abs() < half_side) & (chosen < share)
    is_row = (rows - y).abs() < half_side
    is_inside: Tensor = is_row[:, None, :, None] & is_column[:, None, None, :]
    return is_inside
