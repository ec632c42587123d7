"""Pictures for augmentations, and the way to Pillow's images and back."""

from functools import cache

import numpy as np
import sklearn_images
import torch
from PIL import Image
from torch import Tensor

from foster.data.augmentation.autoaugment import Decisions
from foster.data.augmentation.operations import by_pillow
from foster.data.augmentation.pipeline import Changes
from foster.settings.augmentation import Augmentation


@cache
def sample_images(height: int, width: int) -> Tensor:
    """Tiles of two photos, fine and coarse, and some images that photos are not: flat, two-valued, noise."""
    tiles = []
    for photo in sklearn_images.photos():
        for zoom in (1, 4):
            for top, left in ((20, 30), (160, 400)):
                box = (left, top, left + width * zoom, top + height * zoom)
                tiles.append(Image.fromarray(photo).crop(box).resize((width, height)))
    photos = torch.from_numpy(np.stack([np.asarray(tile) for tile in tiles])).permute(0, 3, 1, 2)
    flat = torch.tensor([0, 1, 77, 255], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, height, width)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (2, 3, height, width), generator=generator, dtype=torch.uint8)
    two_valued = 90 + 20 * (noise > 128)
    return torch.cat((photos, flat, noise, two_valued.to(torch.uint8))).contiguous()


def photo_tiles(height: int, width: int, count: int) -> Tensor:
    """Different tiles of two photos, `[count, 3, height, width]`."""
    photos = torch.from_numpy(np.stack(sklearn_images.photos())).permute(0, 3, 1, 2)
    tiles = photos.unfold(2, height, height).unfold(3, width, width).permute(0, 2, 3, 1, 4, 5)
    return tiles.reshape(-1, 3, height, width)[:count].contiguous()


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


def augment(images: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """The augmented images, on the same device."""
    return Changes(augmentation, images.shape, generator).done_to_all(images)


def decided(images: Tensor, decisions: Decisions) -> Tensor:
    """Images `[n, 3, H, W]` uint8 with each image's first operation applied, then its second, by Pillow."""
    return by_pillow(images, decisions.operations.tolist(), decisions.magnitudes.tolist())
