"""CutMix inside a training step, for distillation: teacher and student see the same mixed images.

Random numbers come from the device's default generator, so that a CUDA graph draws new ones in each replay. The i-th
image of a batch is mixed with the i-th from the end.
"""

import torch
from torch import Tensor


def cutmix(images: Tensor, share: float) -> Tensor:
    """A rectangle of another image of the batch in about `share` of the images `[N, C, H, W]`; shape as it was."""
    return torch.where(_rectangles(images, share), images.flip(0), images)


def _rectangles(images: Tensor, share: float) -> Tensor:
    """A mask bool `[N, 1, H, W]`: a rectangle in about `share` of the images.

    It has the image's aspect. Its share of the area is uniform from 0 to 1, its centre uniform over the image; what
    lies outside the image is cut off.
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
