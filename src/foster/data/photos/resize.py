"""From a picture of any size to the one size that a network sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor


@dataclass(frozen=True)
class Resizing:
    """`stretch` resizes both sides; `crop` resizes until the picture covers the target and keeps the middle."""

    height: int
    width: int
    rule: str = "stretch"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def __call__(self, image: Image.Image) -> Tensor:
        """An RGB image as uint8 `[3, height, width]`; one of the right size stays as it is, bit for bit."""
        if image.size != (self.width, self.height):
            box = _middle(image.size, self.width / self.height) if self.rule == "crop" else None
            image = image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _middle(size: tuple[int, int], aspect: float) -> tuple[float, float, float, float]:
    """The largest box (left, top, right, bottom) of this width / height in the middle of a picture."""
    width, height = size
    box_width, box_height = min(width, height * aspect), min(height, width / aspect)
    left, top = (width - box_width) / 2, (height - box_height) / 2
    return left, top, left + box_width, top + box_height


def typical_side(sizes: Sequence[tuple[int, int]]) -> int:
    """The median of the shorter sides."""
    return round(float(np.median([min(size) for size in sizes])))
