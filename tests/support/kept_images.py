"""Images as a bundle keeps them."""

from collections.abc import Sequence

from torch import Tensor

from foster.bundle.folder import ImageFiles
from foster.data.photos.decode import image_id, png_of


def files_of(stacks: Sequence[Sequence[Tensor]]) -> list[ImageFiles]:
    """PNG files of images `[3, H, W]`, a list for each class id."""
    return [tuple((image_id(image), png_of(image.permute(1, 2, 0).numpy())) for image in images) for images in stacks]
