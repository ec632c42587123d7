"""Rectangles of photos of many sizes, each resized to the one size that a network sees, mirrored or not."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

ASPECT_RANGE = (3 / 4, 4 / 3)  # width over height of a random rectangle
CROP_ATTEMPTS = 10
CENTRE_SHARE = 224 / 256
"""The side of the square in the middle of a photo, as a share of the shorter side; the usual value for testing."""


def random_boxes(sizes: Tensor, share: tuple[float, float], generator: torch.Generator) -> Tensor:
    """Rectangles `[N, 4]` int64 (top, left, height, width) in photos of these `sizes` `[N, 2]` (height, width).

    The area, as a share of the photo's, and the logarithm of the aspect are uniform; the first of ten tries that fits
    is taken. If none fits, it is the largest rectangle in the middle with an aspect in the range.
    """
    low, high = ASPECT_RANGE
    height, width = sizes.double().unsqueeze(2).unbind(1)
    random = torch.rand(4, len(sizes), CROP_ATTEMPTS, dtype=torch.float64, generator=generator)
    area = height * width * (share[0] + (share[1] - share[0]) * random[0])
    aspect = (math.log(low) + (math.log(high) - math.log(low)) * random[1]).exp()
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    tops = (random[2] * (height - heights + 1)).floor()
    lefts = (random[3] * (width - widths + 1)).floor()
    first = fits.int().argmax(1)
    tried = torch.stack((tops, lefts, heights, widths), dim=2)[torch.arange(len(sizes)), first]
    middle_height, middle_width = (
        torch.minimum(height, (width / low).round()),
        torch.minimum(width, (height * high).round()),
    )
    middle = ((height - middle_height) // 2, (width - middle_width) // 2, middle_height, middle_width)
    return torch.where(fits.any(1, keepdim=True), tried, torch.cat(middle, dim=1)).long()


def centre_boxes(sizes: Tensor) -> Tensor:
    """The square in the middle of photos of these `sizes` `[N, 2]`, `[N, 4]` int64 as `random_boxes`."""
    sides = (sizes.amin(1, keepdim=True) * CENTRE_SHARE).round().long().clamp(min=1).expand(-1, 2)
    # Half a pixel towards the end, as the field's own centre crop rounds.
    starts = ((sizes - sides) / 2).round().long()
    return torch.cat((starts, sides), dim=1)


def whole_boxes(sizes: Tensor) -> Tensor:
    """All of each photo."""
    return torch.cat((torch.zeros_like(sizes), sizes), dim=1).long()


def crops_of(photos: Sequence[Tensor], boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int]) -> Tensor:
    """The boxes of photos uint8 `[height, width, 3]`, resized by torch: uint8 `[n, 3, *out_size]` on their device."""
    crops = []
    for photo, box, mirrored in zip(photos, boxes.tolist(), is_mirrored.tolist(), strict=True):
        top, left, height, width = box
        image = photo[top : top + height, left : left + width].permute(2, 0, 1)[None]
        if (height, width) != out_size:
            # On a CPU torch has the same integer arithmetic as Pillow; elsewhere only floats.
            values = image if image.device.type == "cpu" else image.float()
            image = interpolate(values, size=out_size, mode="bilinear", antialias=True, align_corners=False)
            image = image if image.dtype == torch.uint8 else image.add_(0.5).clamp_(0, 255).to(torch.uint8)
        crops.append(image.flip(3) if mirrored else image)
    return torch.cat(crops) if crops else torch.empty((0, 3, *out_size), dtype=torch.uint8)
