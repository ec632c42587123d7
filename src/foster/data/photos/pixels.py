"""One encoded photo -> its upright pixels, made smaller until the shorter side is as long as a network needs."""

import functools
import hashlib
import io
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image
from torch import Tensor
from torch.nn.functional import interpolate

from foster.data.photos.decode import ImageError, decode, upright_size

REENCODED_QUALITY = 95
ID_LENGTH = 12


def pixels_of(content: bytes, short_side: int) -> NDArray[np.uint8]:
    """uint8 `[height, width, 3]`; never enlarged; `short_side` 0 leaves the size as it is. Raises ImageError."""
    if not content:
        raise ImageError("the file is empty")
    quick = _quick(content, short_side)
    if quick is not None:
        return _resized(quick, shrunk_size((quick.shape[1], quick.shape[0]), short_side))
    # Pillow's own way of decoding at a smaller size asks that neither side falls below the target.
    return shrunk(decode(content, short_side or max(upright_size(content))), short_side)


def shrunk_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height with a shorter side of at most `short_side`, the aspect kept."""
    shorter = min(size)
    if not short_side or shorter <= short_side:
        return size
    width, height = (max(1, round(side * short_side / shorter)) for side in size)
    return width, height


def shrunk(image: Image.Image, short_side: int) -> NDArray[np.uint8]:
    """A decoded photo as pixels uint8 `[height, width, 3]` at the size in which it is kept."""
    width, height = shrunk_size(image.size, short_side)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image)


def jpeg_of(pixels: NDArray[np.uint8]) -> bytes:
    """A JPEG of a photo's pixels `[height, width, 3]`, and nothing else that its file may have told."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "JPEG", quality=REENCODED_QUALITY, subsampling=0)
    return target.getvalue()


def image_id(image: Tensor) -> str:
    """The start of the hash of an image's pixels, uint8 `[3, H, W]`: a name that it keeps for life."""
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()[:ID_LENGTH]


@functools.cache
def _simplejpeg() -> ModuleType | None:
    """The faster decoder, where it is installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    module: ModuleType = simplejpeg
    return module


def _quick(content: bytes, short_side: int) -> NDArray[np.uint8] | None:
    """The pixels of an ordinary upright JPEG by the faster decoder, no smaller than is needed; None for any other file,
    and where that decoder has doubts."""
    library = _simplejpeg()
    if library is None or not content.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(content)
        if colours not in ("YCbCr", "Gray", "RGB") or max(height, width) > 16_384:
            return None
        if _may_be_turned(content):
            with Image.open(io.BytesIO(content), formats=["JPEG"]) as header:
                if header.getexif().get(ExifTags.Base.Orientation, 1) != 1:
                    return None
        side = 2 * short_side
        pixels: NDArray[np.uint8] = library.decode_jpeg(content, "RGB", min_height=side, min_width=side)
    except Exception:  # a decoder raises nearly everything; Pillow has the last word
        return None
    return pixels


def _may_be_turned(content: bytes) -> bool:
    """Whether a JPEG has EXIF, which tells how it is turned, or a form that leaves this open. Pillow reads more of it,
    and keeps all other threads waiting meanwhile."""
    at = 2
    while content[at : at + 1] == b"\xff" and content[at + 1] != 0xFF:
        if content[at + 1] == 0xDA:  # here the picture begins
            return False
        if content[at + 1] == 0xE1 and content[at + 4 : at + 9] == b"Exif\0":
            return True
        at += 2 + max(2, int.from_bytes(content[at + 2 : at + 4], "big"))
    return True


def _resized(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """uint8 `[H, W, 3]` at another width and height. By torch where that is quick, within rounding of Pillow: in a
    third of the time, while other threads go on; on the way to Pillow's own images and back, they would wait."""
    width, height = size
    if pixels.shape[:2] == (height, width):
        return pixels
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):  # elsewhere it would start threads of its own
        return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))
    image = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)  # in this order torch sees that channels come last
    smaller = interpolate(image, (height, width), mode="bilinear", antialias=True)
    return smaller[0].permute(1, 2, 0).contiguous().numpy()
