"""One image as it comes (a file, its bytes, a PIL image, an array) -> an upright 8-bit RGB image, or one line that says
why not; and the size that a network sees."""

import functools
import io
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn.functional import interpolate

from foster.errors import DataError, words_of
from foster.system.files import open_limited, read_limited, sha256
from foster.system.memory import num_cores

ImageLike: TypeAlias = str | Path | bytes | Image.Image | NDArray[Any] | Tensor
"""A path, the bytes of an image file, a PIL image, an array `[H, W]` or `[H, W, 1|3|4]`, a tensor `[1|3|4, H, W]`."""

Outcome = TypeVar("Outcome")

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "HEIF", "JPEG2000")
"""The formats that are decoded. Pillow knows others; some of them run programs, and none are photos."""

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".avif", ".heic", ".heif", ".jp2"}
)
"""The endings of image files; other files in a folder are passed over."""

MAX_PIXELS = 89_478_485
"""Larger images are not decoded: a file of a few kilobytes may claim any size. This is Pillow's own limit. A JPEG of up
to twice as many pixels is decoded where a half, a quarter or an eighth of its size is enough."""

MAX_FILE_BYTES = 2**30
MAX_SCANS = 100
"""A JPEG with more scans is not decoded: a scan takes a few bytes, and time for all pixels. This is libtiff's limit;
photos have up to about ten."""

DRAFT_PIXELS = 4_000_000
"""Larger JPEGs are decoded at a half, a quarter or an eighth of their size. The result differs slightly from resizing
the whole image."""

SMALLEST_SIDE = 4
"""Photos with a shorter side are neither learned nor classified."""

DECODED_AT_ONCE = 128
"""The number of photos that are decoded, and inferred, together."""

JPEG = b"\xff\xd8\xff"
"""The first bytes of a JPEG file."""

REENCODED_QUALITY = 95
ID_LENGTH = 12

BACKGROUND = (255, 255, 255)
"""The colour behind transparent pixels."""

_SIXTEEN_BIT_MODES = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_FIRST_TURNED_ORIENTATION = 5
"""From this EXIF orientation on, width and height are exchanged."""

REASONS: dict[type[Exception], str] = {
    Image.DecompressionBombError: f"too large: more than {MAX_PIXELS:,} pixels (of a JPEG, {2 * MAX_PIXELS:,})",
    FileNotFoundError: "no such file or folder",
    PermissionError: "no permission to read it",
    IsADirectoryError: "it is a folder",
    UnidentifiedImageError: "not an image of a known format",
    MemoryError: "too large for the memory",
    struct.error: "damaged",
}
"""What the errors of decoders mean; other errors are quoted."""


class ImageError(DataError):
    """One image cannot be used; the message is the reason alone, without the image's name."""


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Hide Pillow's warnings about odd files: such a file is read, or it is listed as unreadable.

    Warning filters belong to the whole process, so this is entered once around many images and not in a thread.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module=r"PIL\..*")
        yield


@functools.cache
def readable_formats() -> tuple[str, ...]:
    """The formats that can be decoded with what is installed here; HEIC needs the package pillow-heif."""
    # Those that Pillow loads first, and these: loading all of its 60 formats takes longer than a small bundle.
    Image.preinit()
    from PIL import AvifImagePlugin, Jpeg2KImagePlugin, MpoImagePlugin, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def decode(source: ImageLike, target_side: int | None = None) -> Image.Image:
    """`source` as an upright RGB image, transparent parts on white; the first frame of an animation.

    With `target_side` a large JPEG may be decoded at a half, a quarter or an eighth of its size, but not smaller than
    four times that side. Raises ImageError.
    """
    with _explained():
        if isinstance(source, Tensor):
            pixels = source.permute(1, 2, 0) if source.ndim == 3 else source
            # NumPy has fewer floating-point types.
            return _from_array((pixels.float() if pixels.is_floating_point() else pixels).numpy(force=True))
        if isinstance(source, np.ndarray):
            return _from_array(source)
        if isinstance(source, Image.Image):
            return _upright_rgb(source)
        if not isinstance(source, str | Path | bytes):  # a number would be taken for an open file
            raise ImageError(f"neither a path nor an image, but {type(source).__name__}")
        with _opened(source) as image:
            if image.format in ("JPEG", "MPO"):
                content = source if isinstance(source, bytes) else read_limited(Path(source), MAX_FILE_BYTES)
                if _has_too_many_scans(content):
                    raise ImageError(f"damaged (more than {MAX_SCANS} scans)")
            if target_side is not None and image.width * image.height > DRAFT_PIXELS:
                image.draft("RGB", (4 * target_side, 4 * target_side))
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(f"too large: {image.width} x {image.height}, more than {MAX_PIXELS:,} pixels")
            return _upright_rgb(image)


def decode_photo(item: ImageLike, target_side: int) -> Image.Image:
    """As `decode`, but a picture of only a few pixels is refused, too. Raises ImageError."""
    picture = decode(item, target_side)
    if min(picture.size) < SMALLEST_SIDE:
        raise ImageError(f"too small to show anything: {picture.width} x {picture.height} pixels")
    return picture


def upright_size(source: ImageLike) -> tuple[int, int]:
    """Width and height as `decode` would give them, from the file's header alone. Raises ImageError."""
    if not isinstance(source, str | Path | bytes):
        return decode(source).size
    with _explained(), _opened(source) as image:
        orientation = 1
        with suppress(Exception):  # damaged EXIF says nothing about the pixels
            orientation = int(image.getexif().get(ExifTags.Base.Orientation, 1))
        width, height = image.size
        is_turned = orientation >= _FIRST_TURNED_ORIENTATION and image.format != "TIFF"  # which Pillow turns itself
        return (height, width) if is_turned else (width, height)


class Batch(NamedTuple, Generic[Outcome]):
    """The results of some items, and the reasons why others could not be read, by their positions among all items."""

    results: dict[int, Outcome]
    unreadable: dict[int, str]
    num_done: int
    """The number of items up to the end of this batch."""


def decoded_by(
    items: Sequence[ImageLike], work: Callable[[Image.Image], Outcome], target_side: int
) -> Iterator[Batch[Outcome]]:
    """The result of `work` for each picture, in order, `DECODED_AT_ONCE` at a time. Several threads decode."""

    def one(item: ImageLike) -> Outcome | ImageError:
        try:
            return work(decode_photo(item, target_side))
        except ImageError as error:
            return error

    with ThreadPoolExecutor(min(16, num_cores())) as pool:
        for first in range(0, len(items), DECODED_AT_ONCE):
            with quiet_pillow():
                outcomes = dict(enumerate(pool.map(one, items[first : first + DECODED_AT_ONCE]), first))
            results = {k: outcome for k, outcome in outcomes.items() if not isinstance(outcome, ImageError)}
            unreadable = {k: str(outcome) for k, outcome in outcomes.items() if isinstance(outcome, ImageError)}
            yield Batch(results, unreadable, first + len(outcomes))


def decoded(items: Sequence[ImageLike], resizing: "Resizing") -> Iterator[Batch[Tensor]]:
    """The items as images uint8 `[3, H, W]`, some at a time."""
    return decoded_by(items, resizing, max(resizing.size))


@dataclass(frozen=True)
class Resizing:
    """The size that a network sees. Both sides of a picture are resized to it, whatever its aspect."""

    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def __call__(self, image: Image.Image) -> Tensor:
        """An RGB image as uint8 `[3, height, width]`; one of the right size keeps its pixels."""
        if image.size != (self.width, self.height):
            image = image.resize((self.width, self.height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def typical_side(sizes: Sequence[tuple[int, int]]) -> int:
    """The median of the shorter sides."""
    return round(float(np.median([min(size) for size in sizes])))


def file_pixels(content: bytes, short_side: int) -> NDArray[np.uint8]:
    """The upright pixels of an image file, uint8 `[height, width, 3]`, made smaller until the shorter side has
    `short_side` pixels; 0 keeps the size. An ordinary JPEG is decoded by simplejpeg where it is installed.

    Raises ImageError.
    """
    quick = _by_simplejpeg(content, short_side)
    if quick is not None:
        return _resized(quick, shrunk_size((quick.shape[1], quick.shape[0]), short_side))
    return shrunk(decode(content, short_side or None), short_side)


def shrunk_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height with a shorter side of at most `short_side`, the aspect kept; 0 keeps the size."""
    shorter = min(size)
    if not short_side or shorter <= short_side:
        return size
    width, height = (max(1, round(side * short_side / shorter)) for side in size)
    return width, height


def shrunk(image: Image.Image, short_side: int) -> NDArray[np.uint8]:
    """A decoded image as uint8 `[height, width, 3]` with a shorter side of at most `short_side`."""
    size = shrunk_size(image.size, short_side)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image)


def image_file(image: Image.Image, form: str, **options: int) -> bytes:
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels `[height, width, 3]` as a PNG file."""
    return image_file(Image.fromarray(np.ascontiguousarray(pixels)), "PNG")


def jpeg_of(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels `[height, width, 3]` as a JPEG file without any metadata."""
    return image_file(Image.fromarray(pixels), "JPEG", quality=REENCODED_QUALITY, subsampling=0)


def image_id(image: Tensor) -> str:
    """The start of the hash of an image's pixels, uint8 `[3, H, W]`: a name that never changes."""
    return sha256(image.contiguous().numpy().tobytes())[:ID_LENGTH]


@contextmanager
def _explained() -> Iterator[None]:
    """Any failure of a decoder becomes an ImageError: damaged files make decoders raise nearly everything."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        words = next((words for kind, words in REASONS.items() if isinstance(error, kind)), "")
        raise ImageError(words or f"damaged ({words_of(error)})") from None


@contextmanager
def _opened(source: str | Path | bytes) -> Iterator[Image.Image]:
    """The image with only its header read."""
    with io.BytesIO(source) if isinstance(source, bytes) else open_limited(Path(source), MAX_FILE_BYTES) as file:
        num_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        if not num_bytes:
            raise ImageError("the file is empty")
        try:
            image = Image.open(file, formats=readable_formats())
        except UnidentifiedImageError:
            file.seek(4)
            if file.read(7) in (b"ftyphei", b"ftyphev", b"ftypmif") and "HEIF" not in readable_formats():
                reason = "a HEIC photo; to read it, install the extra: pip install 'foster-cil[heic]'"
                raise ImageError(reason) from None
            raise
        with image:
            yield image


def _has_too_many_scans(content: bytes) -> bool:
    """Whether a JPEG file has more scans than are decoded. The marker of a scan is followed by a length below 256."""
    return content.count(b"\xff\xda\x00") > MAX_SCANS


def _upright_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "F":
        raise ImageError("floating-point pixels have no known range; convert it to 8 or 16 bits")
    with suppress(Exception):  # damaged EXIF says nothing about the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode == "I":
        image = _sixteen_bit(image)
    if image.mode in _SIXTEEN_BIT_MODES:
        return _from_array(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_background(image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _sixteen_bit(image: Image.Image) -> Image.Image:
    """An image of 32-bit integers, Pillow's mode for some files of 16 bits, as one of 16 bits."""
    low, high = cast(tuple[int, int], image.getextrema())
    if low < 0 or high > 65535:
        raise ImageError(f"pixels of mode I from {low} to {high}: they must lie in 0 to 65535")
    return image.convert("I;16")


def _on_background(image: Image.Image) -> Image.Image:
    background = Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return Image.alpha_composite(background, image).convert("RGB")


def _from_array(array: NDArray[Any]) -> Image.Image:
    """uint8, uint16, other integers from 0 to 255, bool, or floats from 0 to 1; `[H, W]` or `[H, W, 1|3|4]`."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
        raise ImageError(f"an image array is [H, W] or [H, W, 1|3|4], not of shape {array.shape}")
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
        low, high = array.min(), array.max()
        if low < 0 or high > 255:
            raise ImageError(f"{kind} pixels from {low} to {high}: give uint8, uint16, or floats from 0 to 1")
        return array.astype(np.uint8)
    if np.issubdtype(kind, np.floating):
        low, high = array.min(), array.max()
        if not (low >= 0 and high <= 1):
            raise ImageError(f"floating-point pixels must lie in 0 to 1, not {low:g} to {high:g}")
        return np.asarray((array * 255).round(), dtype=np.uint8)
    raise ImageError(f"pixels must be numbers, not {array.dtype}")


@functools.cache
def _simplejpeg() -> ModuleType | None:
    """The faster decoder, where it is installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    module: ModuleType = simplejpeg
    return module


def _by_simplejpeg(content: bytes, short_side: int) -> NDArray[np.uint8] | None:
    """The pixels of an ordinary upright JPEG, no smaller than is needed; None for any other file, which Pillow then
    decodes or refuses."""
    library = _simplejpeg()
    if library is None or not content.startswith(JPEG):
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(content)
        if colours not in ("YCbCr", "Gray", "RGB") or height * width > MAX_PIXELS or _has_too_many_scans(content):
            return None
        if b"Exif\0" in content:  # only then: Pillow keeps all other threads waiting while it reads a header
            with Image.open(io.BytesIO(content), formats=["JPEG"]) as header:
                if header.getexif().get(ExifTags.Base.Orientation, 1) != 1:
                    return None
        side = 2 * short_side
        pixels: NDArray[np.uint8] = library.decode_jpeg(content, "RGB", min_height=side, min_width=side)
    except Exception:  # a decoder raises nearly everything; Pillow has the last word
        return None
    return pixels


def _resized(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """uint8 `[H, W, 3]` at another width and height. Where the processor has AVX, torch does it within rounding of
    Pillow, in a third of the time and without Python's lock."""
    width, height = size
    if pixels.shape[:2] == (height, width):
        return pixels
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):  # elsewhere it would start threads of its own
        return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))
    image = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)  # in this order torch sees that channels come last
    smaller = interpolate(image, (height, width), mode="bilinear", antialias=True)
    return smaller[0].permute(1, 2, 0).contiguous().numpy()
