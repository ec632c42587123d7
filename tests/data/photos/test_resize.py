"""From a picture of any size to the size of a network: stretched or cropped."""

import numpy as np
from PIL import Image

from foster.data.photos.decode import decode
from foster.data.photos.resize import Resizing

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def test_stretching_uses_the_whole_picture_and_cropping_its_middle() -> None:
    image = Image.new("RGB", (90, 30), RED)
    image.paste(GREEN, (30, 0, 60, 30))
    stretched, cropped = Resizing(8, 8, "stretch")(image), Resizing(8, 8, "crop")(image)
    assert stretched.shape == cropped.shape == (3, 8, 8)
    assert stretched[0, 4, 0] == 255
    assert stretched[1, 4, 4] > 245
    assert cropped[1, :, 1:-1].min() == 255
    assert cropped[0, :, 1:-1].max() == 0


def test_an_image_of_the_right_size_is_left_alone_bit_for_bit() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    for rule in ("stretch", "crop"):
        assert np.array_equal(Resizing(6, 5, rule)(decode(pixels)).permute(1, 2, 0).numpy(), pixels)
