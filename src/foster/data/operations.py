"""AutoAugment's fourteen operations on whole batches of images, computed as Pillow computes them.

An operation takes images `[n, 3, H, W]` uint8 and a magnitude for each image, and returns new images. Arithmetic is
done in integers, or in the float type that Pillow uses and one operator at a time (a fused multiply-add rounds
differently), so the results equal Pillow's and do not depend on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foster.data.geometry import (
    rotation,
    shear,
    slope_x,
    slope_y,
    transform_nearest,
    translation_x,
    translation_y,
)

LUMA_WEIGHTS = (19595, 38470, 7471)  # ITU-R 601-2, in 65536ths


@dataclass(frozen=True)
class Operation:
    """`apply(images, prepare(images, magnitudes))`.

    `prepare` makes one row of parameters for each image. Operations with the same `apply` differ in their parameters
    alone and can be applied to their images in one go.
    """

    apply: Callable[[Tensor, Tensor], Tensor]
    prepare: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, images: Tensor, magnitudes: Tensor) -> Tensor:
        """Images `[n, 3, H, W]` uint8 and signed magnitudes `[n]` float64 to new images."""
        return self.apply(images, self.prepare(images, magnitudes))


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Small CPU tensors on their way to `device`, without making the CPU wait."""
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Pillow's `Image.blend`: from `degenerate` (factor 0) through `images` (factor 1) and beyond, cut off to uint8.

    The tensors are float32 and broadcast. The fraction is dropped, not rounded.
    """
    return ((images - degenerate) * factor).add_(degenerate).clamp_(0, 255).to(torch.uint8)


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Every image times its own factor `[n]` float32: 0 is black, 1 changes nothing."""
    return images.float().mul_(factor.view(-1, 1, 1, 1)).clamp_(0, 255).to(torch.uint8)


def luma(images: Tensor) -> Tensor:
    """The grey image `[n, 1, H, W]` float32 of images in float32, as Pillow converts RGB to L.

    Every sum is an integer below 2 ** 24, which float32 holds exactly.
    """
    red, green, blue = images.unbind(1)
    total = (red * LUMA_WEIGHTS[0]).add_(green, alpha=LUMA_WEIGHTS[1]).add_(blue, alpha=LUMA_WEIGHTS[2])
    return total.add_(1 << 15).mul_(1 / (1 << 16)).floor_().unsqueeze(1)


def _adjust_colour(images: Tensor, magnitudes: Tensor) -> Tensor:
    images = images.float()
    return blend(luma(images), images, _factor(magnitudes).view(-1, 1, 1, 1))


def _adjust_sharpness(images: Tensor, magnitudes: Tensor) -> Tensor:
    """Blended with the smoothed image; Pillow's filter leaves the outermost pixels alone."""
    wide = images.to(torch.int16)
    centre = wide[:, :, 1:-1, 1:-1]
    sums = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    sums = sums[..., :-2] + sums[..., 1:-1] + sums[..., 2:] + 4 * centre
    # A sum of integers over 13 is never half-way between two integers, so float32 rounds it like any other type.
    smooth = (sums.float() / 13).round_()
    result = images.clone()
    result[:, :, 1:-1, 1:-1] = blend(smooth, centre.float(), _factor(magnitudes).view(-1, 1, 1, 1))
    return result


def _factor(magnitudes: Tensor) -> Tensor:
    return (1 + magnitudes).float()


def _unchanged(images: Tensor, magnitudes: Tensor) -> Tensor:
    return magnitudes


def lookup(images: Tensor, tables: Tensor) -> Tensor:
    """Each value replaced by what the table of its image and channel says; `tables` is `[n, 3, 256]` uint8."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def _values(images: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.arange(256, dtype=dtype, device=images.device)


def _for_every_channel(tables: Tensor) -> Tensor:
    return tables.unsqueeze(1).expand(-1, 3, -1)


def _brightness_table(images: Tensor, magnitudes: Tensor) -> Tensor:
    tables = _values(images, torch.float32) * _factor(magnitudes).unsqueeze(1)
    return _for_every_channel(tables.clamp_(0, 255).to(torch.uint8))


def _contrast_table(images: Tensor, magnitudes: Tensor) -> Tensor:
    mean = luma(images.float()).flatten(1).mean(1, keepdim=True, dtype=torch.float64).add_(0.5).floor_().float()
    return _for_every_channel(blend(mean, _values(images, torch.float32), _factor(magnitudes).unsqueeze(1)))


def _posterize_table(images: Tensor, bits: Tensor) -> Tensor:
    num_dropped = (8 - bits).to(torch.uint8).unsqueeze(1)
    return _for_every_channel(_values(images, torch.uint8) >> num_dropped << num_dropped)


def _solarize_table(images: Tensor, threshold: Tensor) -> Tensor:
    values = _values(images, torch.float64)
    return _for_every_channel(torch.where(values < threshold.unsqueeze(1), values, 255 - values).to(torch.uint8))


def _invert_table(images: Tensor, magnitudes: Tensor) -> Tensor:
    return (255 - _values(images, torch.uint8)).expand(len(images), 3, 256)


def _autocontrast_table(images: Tensor, magnitudes: Tensor) -> Tensor:
    """From the lowest value of a channel (to 0) to the highest (to 255); a channel of one value stays as it is."""
    values = _values(images, torch.float64)
    lowest = images.flatten(2).amin(2, keepdim=True).double()
    span = images.flatten(2).amax(2, keepdim=True) - lowest
    scale = torch.full_like(span, 255) / span.clamp(min=1)  # `255 / span` would multiply by a rounded reciprocal
    tables = (values * scale - lowest * scale).clamp_(0, 255)
    return torch.where(span > 0, tables, values).to(torch.uint8)


def _equalize_table(images: Tensor, magnitudes: Tensor) -> Tensor:
    """The values of a channel spread so that all are about equally frequent; where that needs no step, unchanged."""
    pixels = images.flatten(2).long()
    counts = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, pixels, torch.ones((), dtype=torch.int32, device=images.device).expand_as(pixels))
    num_highest = counts.gather(2, images.flatten(2).amax(2, keepdim=True).long())
    step = (pixels.shape[2] - num_highest) // 255
    num_below = counts.cumsum(2, dtype=torch.int32) - counts
    tables = ((num_below + step // 2) // step.clamp(min=1)).clamp_(max=255)
    return torch.where(step > 0, tables, _values(images, torch.int32)).to(torch.uint8)


# Operations that share an `apply` stand together, so a batch sorted by operation is sorted by `apply`. The magnitude
# of a shear is a slope, of a translation a fraction of the width or height, of Rotate degrees; Color, Sharpness,
# Brightness and Contrast use the factor 1 + magnitude; Posterize keeps that many bits, Solarize inverts from that
# value on; the others need none.
OPERATIONS: dict[str, Operation] = {
    "ShearX": Operation(shear, slope_x),
    "ShearY": Operation(shear, slope_y),
    "TranslateX": Operation(transform_nearest, translation_x),
    "TranslateY": Operation(transform_nearest, translation_y),
    "Rotate": Operation(transform_nearest, rotation),
    "Color": Operation(_adjust_colour, _unchanged),
    "Sharpness": Operation(_adjust_sharpness, _unchanged),
    "Brightness": Operation(lookup, _brightness_table),
    "Contrast": Operation(lookup, _contrast_table),
    "Posterize": Operation(lookup, _posterize_table),
    "Solarize": Operation(lookup, _solarize_table),
    "Invert": Operation(lookup, _invert_table),
    "AutoContrast": Operation(lookup, _autocontrast_table),
    "Equalize": Operation(lookup, _equalize_table),
}
