"""One image as it comes (a file, a PIL image, an array) -> an upright 8-bit RGB image, or a line that says why not."""

import io
import struct
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from foster.data.photos.headers import claim_of
from foster.errors import DataError, words_of
from foster.system.files import open_limited

ImageLike: TypeAlias = str | Path | bytes | Image.Image | NDArray[Any] | torch.Tensor
"""A path, the bytes of an image file, a PIL image, an array `[H, W]` or `[H, W, 1|3|4]`, a tensor `[1|3|4, H, W]`."""

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""What is decoded. Others that Pillow knows stay closed: some run programs, none are photos."""

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".jp2"}
)
"""How the names of image files end; other files in a folder are passed over."""

MAX_PIXELS = 150_000_000
MAX_SIDE = 40_000
MAX_FILE_BYTES = 2**30
"""Larger images are refused before they are decoded: a file of some kilobytes may claim to be any size."""

LARGE_PIXELS = 25_000_000
"""Larger images are decoded one at a time, however many threads there are, and made smaller where a target is known."""
DRAFT_PIXELS = 4_000_000
"""Larger JPEGs are decoded at a part of their size, which differs a little from resizing all of it."""

STRIP_PIXELS = 1_000_000
"""Images become RGB in strips of about this many pixels, so that the steps between take no more than that."""

BACKGROUND = (255, 255, 255)
"""What shows through transparent pixels."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns an image of each EXIF orientation upright."""

_ROTATED_BY_A_QUARTER = frozenset({5, 6, 7, 8})
_SIXTEEN_BIT_MODES = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})

MISSING = "there is no such file"
REASONS: dict[type[Exception], str] = {
    Image.DecompressionBombError: f"too large: more than {MAX_PIXELS:,} pixels",
    FileNotFoundError: MISSING,
    PermissionError: "no permission to read it",
    IsADirectoryError: "it is a folder",
    UnidentifiedImageError: "not an image of a known format",
    MemoryError: "too large for the memory",
    struct.error: "damaged",
}
"""What errors of decoders mean; of others, their own words are told."""

_LARGE_IMAGE = threading.Lock()
"""Held while a large image is decoded."""

_SAME_IMAGE = tuple(threading.Lock() for _ in range(61))
"""One of them, chosen by the image's id, is held while a PIL image is read: Pillow loads pixels and EXIF into the
image itself, and the same image may be given many times."""


class ImageError(DataError):
    """One image cannot be used; the message is the reason alone, without the image's name."""


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Pillow's warnings about odd files are not shown inside: such a file is read or it is listed as unreadable.

    Warning filters belong to the whole process, so this is entered once around many images and not in a thread.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module=r"PIL\..*")
        yield


def decode(source: ImageLike, target_side: int | None = None) -> Image.Image:
    """`source` as an upright RGB image, transparent parts on white; the first frame of an animation.

    With `target_side` a camera's JPEG may be decoded at a half, a quarter or an eighth of its size, at least four times
    that side, and a very large image of another format may be made smaller, to twice that side. Raises ImageError.
    """
    with _explained():
        if isinstance(source, torch.Tensor):
            return _from_array(_as_array(source.permute(1, 2, 0) if source.ndim == 3 else source))
        if isinstance(source, np.ndarray):
            return _from_array(source)
        if isinstance(source, Image.Image):
            _check_size(source.size)
            with _SAME_IMAGE[id(source) % len(_SAME_IMAGE)]:
                return _upright_rgb(source, target_side)
        if not isinstance(source, str | Path | bytes):  # a number would be taken for an open file
            raise ImageError(f"neither a path nor an image, but {type(source).__name__}")
        return _from_file(source, target_side)


def upright_size(source: ImageLike) -> tuple[int, int]:
    """Width and height as `decode` would give them, from the file's header alone. Raises ImageError."""
    if not isinstance(source, str | Path | bytes):
        return decode(source).size
    with _explained(), _opened(source) as image:
        width, height = image.size
        return (height, width) if _orientation(image) in _ROTATED_BY_A_QUARTER else (width, height)


def check_integers(pixels: NDArray[Any] | torch.Tensor) -> None:
    """Refuse integers of an unknown range, of one image or of a whole batch. Raises ImageError.

    The range of uint8 and uint16 belongs to the type. Any other integers must lie in 0 to 255: what their type can
    hold says nothing about them, and a dark image alone would not show that its batch has more bits.
    """
    array = _as_array(pixels) if isinstance(pixels, torch.Tensor) else pixels
    kind = array.dtype.newbyteorder("=")
    if not np.issubdtype(kind, np.integer) or kind in (np.uint8, np.uint16) or not array.size:
        return
    low, high = array.min(), array.max()
    if low < 0 or high > 255:
        raise ImageError(f"{kind} pixels from {low} to {high}: give uint8, uint16, or floats from 0 to 1")


@contextmanager
def _explained() -> Iterator[None]:
    """Any failure of a decoder is a fact about the image: files are hostile, and decoders raise nearly everything."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        words = next((words for kind, words in REASONS.items() if isinstance(error, kind)), "")
        raise ImageError(words or f"damaged ({words_of(error)})") from None


def _from_file(source: str | Path | bytes, target_side: int | None) -> Image.Image:
    with _opened(source) as image:
        if target_side is not None and image.width * image.height > DRAFT_PIXELS:
            image.draft("RGB", (4 * target_side, 4 * target_side))
        if image.width * image.height <= LARGE_PIXELS:
            return _upright_rgb(image, target_side)
        # In a thread of its own: an allocator keeps freed memory back for each thread that ever asked for much.
        with _LARGE_IMAGE, ThreadPoolExecutor(1) as alone, closing(image):
            return alone.submit(_upright_rgb, image, target_side).result()


@contextmanager
def _opened(source: str | Path | bytes) -> Iterator[Image.Image]:
    """The image with only its header read, and known to be of a size that may be decoded."""
    Image.init()
    formats = [name for name in FORMATS if name in Image.OPEN]
    with io.BytesIO(source) if isinstance(source, bytes) else open_limited(Path(source), MAX_FILE_BYTES) as file:
        claim = claim_of(file)
        if not claim.num_bytes:
            raise ImageError("the file is empty")
        if claim.is_heic:
            raise ImageError("a HEIC photo, which is not read; save it as JPEG")
        _check_size(claim.size or (1, 1))
        with Image.open(file, formats=formats) as image:
            _check_size(image.size)
            yield image


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise ImageError(f"it has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS:
        raise ImageError(f"too large: {width} x {height}, more than {MAX_PIXELS:,} pixels")
    if max(width, height) > MAX_SIDE:
        raise ImageError(f"too large: {width} x {height}, a side of more than {MAX_SIDE:,} pixels")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF says nothing about the pixels
        return 1


def _upright_rgb(image: Image.Image, target_side: int | None) -> Image.Image:
    image.load()
    if image.mode == "F":
        raise ImageError("floating-point pixels have no known range; convert it to 8 or 16 bits")
    reduction = 1
    if target_side is not None and image.width * image.height > LARGE_PIXELS:
        reduction = max(1, min(image.size) // (2 * target_side))
    rgb = _in_strips(_of_known_range(image), reduction)
    turn = _UPRIGHT.get(_orientation(image))
    return rgb if turn is None else rgb.transpose(turn)


def _of_known_range(image: Image.Image) -> Image.Image:
    """An image of 32-bit integers as one of 16 bits where a file holds it, else of 8; any other as it is."""
    if image.mode != "I":
        return image
    # Only Pillow's readers set a format: they use this mode for files of 16 bits.
    mode, highest = ("I;16", 65535) if image.format else ("L", 255)
    low, high = cast(tuple[int, int], image.getextrema())
    if low < 0 or high > highest:
        raise ImageError(f"pixels of mode I from {low} to {high}: they must lie in 0 to {highest}; give mode L or I;16")
    return image.convert(mode)


def _in_strips(image: Image.Image, reduction: int) -> Image.Image:
    """The image in RGB, each pixel the mean of `reduction` x `reduction`; always a copy."""
    width, height = image.size
    num_rows = reduction * max(1, STRIP_PIXELS // (width * reduction))
    if height <= num_rows and reduction == 1:
        return _rgb(image)
    result = Image.new("RGB", (-(-width // reduction), -(-height // reduction)))
    for top in range(0, height, num_rows):
        strip = _rgb(image.crop((0, top, width, min(top + num_rows, height))))
        result.paste(strip.reduce(reduction) if reduction > 1 else strip, (0, top // reduction))
    return result


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BIT_MODES:
        return _from_array(np.asarray(image))
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    if has_alpha:
        return _on_background(image.convert("RGBA"))
    return image.convert("RGB")  # a copy also where it is RGB already


def _on_background(image: Image.Image) -> Image.Image:
    background = Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return Image.alpha_composite(background, image).convert("RGB")


def _as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor of any type as an array of the same form; NumPy has fewer floating-point types."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _from_array(array: NDArray[Any]) -> Image.Image:
    """uint8, uint16, other integers from 0 to 255, bool, or floats from 0 to 1; `[H, W]` or `[H, W, 1|3|4]`."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
        raise ImageError(f"an image array is [H, W] or [H, W, 1|3|4], not of shape {array.shape}")
    _check_size((array.shape[1], array.shape[0]))
    image = Image.fromarray(np.ascontiguousarray(_eight_bit(array)))
    return _on_background(image) if image.mode == "RGBA" else image.convert("RGB")


def _eight_bit(array: NDArray[Any]) -> NDArray[np.uint8]:
    kind = array.dtype.newbyteorder("=")
    if kind == np.uint8:
        return array
    if kind == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if kind == np.uint16:
        # 65535 / 257 = 255 exactly. The range belongs to the type: stretching each image would hide its exposure.
        return np.asarray((array.astype(np.uint32) + 128) // 257, dtype=np.uint8)
    if np.issubdtype(kind, np.integer):
        check_integers(array)
        return array.astype(np.uint8)
    if np.issubdtype(kind, np.floating):
        low, high = array.min(), array.max()
        if not (low >= 0 and high <= 1):
            raise ImageError(f"floating-point pixels must lie in 0 to 1, not {low:g} to {high:g}")
        return np.asarray((array * 255).round(), dtype=np.uint8)
    raise ImageError(f"pixels must be numbers, not {array.dtype}")
