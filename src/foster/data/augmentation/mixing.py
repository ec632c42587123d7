"""Images mixed with each other inside a training step: for a student that learns what its teacher says of any image.

Everything is drawn on the device from its default generator, so that a recorded step draws anew each time. The other
image of the i-th of a batch is the i-th from the end.
"""

import torch
from torch import Tensor


def cutmix(images: Tensor, share: float) -> Tensor:
    """A rectangle of another image of the batch in about `share` of the images `[N, C, H, W]`; shape as it was."""
    return torch.where(_rectangles(images, share), images.flip(0), images)


def _rectangles(images: Tensor, share: float) -> Tensor:
    """Where each image is to be another one, bool `[N, 1, H, W]`: a rectangle in about `share` of them.

    It has the image's proportions, an area between none and all of it, each as likely as the other, and a centre
    anywhere; what lies outside of the image is cut off.
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
