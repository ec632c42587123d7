"""One encoded photo -> its upright pixels, made smaller until the shorter side is as long as a network needs."""

import functools
import io
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from foster.data.photos.decode import ImageError, decode, upright_size

REENCODED_QUALITY = 95


def pixels_of(content: bytes, short_side: int) -> NDArray[np.uint8]:
    """uint8 `[height, width, 3]`; never enlarged; `short_side` 0 leaves the size as it is. Raises ImageError."""
    if not content:
        raise ImageError("the file is empty")
    image = _quick(content, short_side)
    if image is None:
        # Pillow's own way of decoding at a smaller size asks that neither side falls below the target.
        image = decode(content, short_side or max(upright_size(content)))
    width, height = shrunk_size(image.size, short_side)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image)


def shrunk_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height with a shorter side of at most `short_side`, the aspect kept."""
    shorter = min(size)
    if not short_side or shorter <= short_side:
        return size
    width, height = (max(1, round(side * short_side / shorter)) for side in size)
    return width, height


def reencoded(content: bytes, short_side: int) -> bytes:
    """A JPEG of the photo at the size in which it is used."""
    target = io.BytesIO()
    Image.fromarray(pixels_of(content, short_side)).save(target, "JPEG", quality=REENCODED_QUALITY, subsampling=0)
    return target.getvalue()


@functools.cache
def _simplejpeg() -> ModuleType | None:
    """The faster decoder, where it is installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    module: ModuleType = simplejpeg
    return module


def _quick(content: bytes, short_side: int) -> Image.Image | None:
    """An ordinary upright JPEG by the faster decoder; None for any other file, and where that decoder has doubts."""
    library = _simplejpeg()
    if library is None or not content.startswith(b"\xff\xd8\xff"):
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as header:
            is_plain = header.mode in ("RGB", "L") and max(header.size) <= 16_384
            if not is_plain or ("exif" in header.info and header.getexif().get(ExifTags.Base.Orientation, 1) != 1):
                return None
        side = 2 * short_side
        pixels = library.decode_jpeg(content, "RGB", min_height=side, min_width=side)
    except Exception:  # a decoder raises nearly everything; Pillow has the last word
        return None
    return Image.fromarray(pixels)
