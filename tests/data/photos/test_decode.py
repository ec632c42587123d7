"""Large images: what they need on the way to RGB is bounded, and the picture is the same."""

import io
import struct
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps

from foster.data.photos import decode as decoding
from foster.data.photos.decode import MAX_PIXELS, MAX_SIDE, ImageError, decode, upright_size
from foster.data.photos.read import read_photos
from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos

UPSIDE_DOWN, TURN_RIGHT = 3, 6

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def pictures_of_every_mode() -> dict[str, Image.Image]:
    """Noise, 37 x 23, in every mode that has a way of its own to RGB."""
    random = np.random.default_rng(0)
    colours = Image.fromarray(random.integers(0, 256, (23, 37, 4), dtype=np.uint8))
    palette = colours.convert("RGB").quantize(16)
    palette.info["transparency"] = 3
    deep = Image.fromarray(random.integers(0, 65536, (23, 37), dtype=np.uint16))
    modes = {mode: colours.convert(mode) for mode in ("RGB", "L", "1", "CMYK", "RGBA", "LA", "I")}
    return {**modes, "P with transparency": palette, "I;16": deep}


@pytest.mark.parametrize("name", pictures_of_every_mode())
def test_an_image_that_is_taken_in_strips_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = pictures_of_every_mode()[name]
    for orientation in range(1, 9):
        picture.getexif()[ExifTags.Base.Orientation] = orientation
        monkeypatch.setattr(decoding, "STRIP_PIXELS", 10**6)
        whole = np.asarray(decode(picture))
        monkeypatch.setattr(decoding, "STRIP_PIXELS", 4 * 37)
        assert np.array_equal(np.asarray(decode(picture)), whole), orientation
        upright = ImageOps.exif_transpose(picture)
        assert upright is not None
        assert decode(picture).size == upright.size
        if name == "RGB":
            assert np.array_equal(whole, np.asarray(upright))


def test_no_step_between_decoding_and_rgb_needs_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A palette with transparency went through three whole copies of four bytes a pixel."""
    Image.new("P", (3000, 2000)).save(tmp_path / "plain.png", transparency=0)
    sizes: list[int] = []
    convert = Image.Image.convert

    def noted(image: Image.Image, *arguments: object, **options: object) -> Image.Image:
        sizes.append(image.width * image.height)
        return convert(image, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Image.Image, "convert", noted)
    assert decode(tmp_path / "plain.png").getpixel((2999, 1999)) == (255, 255, 255)
    assert max(sizes) <= decoding.STRIP_PIXELS


def test_a_very_large_image_is_made_smaller_but_never_below_twice_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ramp = np.linspace(0, 255, 403 * 300).reshape(403, 300).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    resize = Resizing(16, 16)
    expected = resize(decode(tmp_path / "ramp.png", target_side=16)).int()
    monkeypatch.setattr(decoding, "LARGE_PIXELS", 100 * 100)
    monkeypatch.setattr(decoding, "STRIP_PIXELS", 50 * 300)
    found = decode(tmp_path / "ramp.png", target_side=16)
    assert found.size == (34, 45), "both sides by 9, the most that leaves 32"
    assert (resize(found).int() - expected).abs().max() <= 2
    assert decode(tmp_path / "ramp.png").size == (300, 403), "without a target it stays as it is"


@pytest.mark.parametrize(("large_pixels", "num_together"), [(15, 1), (16, 4)])
def test_large_images_are_decoded_one_at_a_time_by_any_number_of_threads(
    large_pixels: int, num_together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (4, 4), RED).save(tmp_path / "small.png")
    now, most, changing = 0, 0, threading.Lock()
    upright = decoding._upright_rgb

    def slow(image: Image.Image, target_side: int | None) -> Image.Image:
        nonlocal now, most
        with changing:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with changing:
            now -= 1
        return upright(image, target_side)

    monkeypatch.setattr(decoding, "LARGE_PIXELS", large_pixels)
    monkeypatch.setattr(decoding, "_upright_rgb", slow)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(decode, [tmp_path / "small.png"] * 12))
    assert most == num_together
    assert all(image.getpixel((0, 0)) == RED for image in found)


def test_a_damaged_large_image_gives_its_reason_and_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "LARGE_PIXELS", 15)
    whole = io.BytesIO()
    Image.effect_noise((40, 40), 50).save(whole, "png")
    for _ in range(2):
        with pytest.raises(ImageError, match="truncated"):
            decode(whole.getvalue()[:-300])
    assert decode(whole.getvalue()).size == (40, 40)


def two_tone() -> Image.Image:
    """4 x 2 pixels: the left half red, the right half green."""
    image = Image.new("RGB", (4, 2), RED)
    image.paste(GREEN, (2, 0, 4, 2))
    return image


def near(pixel: object, colour: tuple[int, int, int], tolerance: int = 0) -> bool:
    return bool(np.abs(np.asarray(pixel, dtype=int) - np.asarray(colour)).max() <= tolerance)


@pytest.mark.parametrize(
    ("suffix", "options", "tolerance"),
    [
        (".png", {}, 0),
        (".bmp", {}, 0),
        (".gif", {}, 0),
        (".tiff", {}, 0),
        (".webp", {"lossless": True}, 0),
        (".jpg", {"quality": 95, "subsampling": 0}, 12),
    ],
)
def test_every_format_gives_the_same_picture(
    tmp_path: Path, suffix: str, options: dict[str, object], tolerance: int
) -> None:
    path = tmp_path / f"a photo{suffix}"
    two_tone().resize((32, 16), Image.Resampling.NEAREST).save(path, **options)
    image = decode(path)
    assert image.mode == "RGB"
    assert image.size == (32, 16)
    assert near(image.getpixel((4, 8)), RED, tolerance)
    assert near(image.getpixel((28, 8)), GREEN, tolerance)


def test_a_rotated_photo_stands_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = TURN_RIGHT
    path = tmp_path / "phone.png"
    two_tone().save(path, exif=exif)
    image = decode(path)
    assert image.size == upright_size(path) == (2, 4)
    assert image.getpixel((0, 0)) == RED
    assert image.getpixel((0, 3)) == GREEN


def test_an_orientation_that_keeps_the_sides_is_applied_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = UPSIDE_DOWN
    two_tone().save(tmp_path / "a.png", exif=exif)
    assert decode(tmp_path / "a.png").getpixel((0, 0)) == GREEN
    assert upright_size(tmp_path / "a.png") == (4, 2)


def test_grey_palette_and_cmyk_become_rgb(tmp_path: Path) -> None:
    Image.new("L", (3, 3), 77).save(tmp_path / "grey.png")
    Image.new("1", (3, 3), 1).save(tmp_path / "bits.png")
    two_tone().quantize(4).save(tmp_path / "palette.png")
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "print.jpg", quality=95)
    assert decode(tmp_path / "grey.png").getpixel((1, 1)) == (77, 77, 77)
    assert decode(tmp_path / "bits.png").getpixel((1, 1)) == WHITE
    assert decode(tmp_path / "palette.png").getpixel((3, 0)) == GREEN
    assert near(decode(tmp_path / "print.jpg").getpixel((8, 8)), RED, 6)


def test_transparent_pixels_are_white_in_every_mode(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("RGBA", (2, 2), (255, 0, 0, 128)).save(tmp_path / "half.png")
    Image.new("LA", (2, 2), (0, 0)).save(tmp_path / "grey.png")
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.save(tmp_path / "palette.png", transparency=0)
    for name in ("clear", "grey", "palette"):
        assert decode(tmp_path / f"{name}.png").getpixel((0, 0)) == WHITE, name
    assert near(decode(tmp_path / "half.png").getpixel((0, 0)), (255, 127, 127), 1)


def test_16_bit_values_keep_their_brightness(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 100, 65535, 128, 129]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    Image.fromarray(values).save(tmp_path / "deep.tiff")
    for name in ("deep.png", "deep.tiff"):
        assert np.asarray(decode(tmp_path / name))[0, :, 0].tolist() == [0, 100, 255, 0, 1], name
    assert np.asarray(decode(values))[0, :, 0].tolist() == [0, 100, 255, 0, 1]


def test_the_first_frame_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), GREEN)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert decode(tmp_path / "a.gif").getpixel((0, 0)) == RED
    assert decode(tmp_path / "a.webp").getpixel((0, 0)) == RED


def test_arrays_tensors_pil_images_and_bytes_are_the_same_picture() -> None:
    image = two_tone()
    buffer = io.BytesIO()
    image.save(buffer, "png")
    array = np.asarray(image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    for given in (image, array, array / 255.0, array.astype(np.uint16) * 257, tensor, buffer.getvalue()):
        assert np.array_equal(np.asarray(decode(given)), array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2, 5), np.uint8), r"not of shape \(2, 2, 5\)"),
        (np.full((2, 2), 300.0), "must lie in 0 to 1, not 300 to 300"),
        (np.full((2, 2), np.nan), "must lie in 0 to 1"),
        (np.full((2, 2), -1), "int64 pixels from -1 to -1: give uint8, uint16, or floats from 0 to 1"),
        (np.array([["a.png", None]]), "must be numbers, not object"),
        (np.zeros((0, 4), np.uint8), "no pixels"),
    ],
)
def test_an_array_that_is_no_image_says_what_one_is(array: np.ndarray, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        decode(array)


def png_that_claims(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header promises any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (12_500, 12_001), (MAX_SIDE + 1, 1), (1 << 30, 1 << 30)]
)
def test_an_absurd_size_is_refused_before_decoding_and_without_a_warning(width: int, height: int) -> None:
    photos = find_photos(([png_that_claims(width, height), Image.new("RGB", (4, 4))], ["a", "a"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_photos(photos, Resizing(4, 4))
    assert len(found.images) == 1
    assert "too large" in found.unreadable[0].reason


def test_the_largest_size_that_is_allowed_is_a_phone_camera_photo() -> None:
    assert MAX_PIXELS > 12_000 * 9_000


def test_damaged_files_give_a_reason_and_not_a_crash(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(whole, "jpeg")
    damaged = {
        "cut.jpg": (whole.getvalue()[: len(whole.getvalue()) // 2], "truncated"),
        "empty.png": (b"", "the file is empty"),
        "text.png": (b"this is no image", "not an image of a known format"),
        "phone.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC photo, which is not read; save it as JPEG"),
        "header.png": (b"\x89PNG\r\n\x1a\n\0\0\0", "damaged|not an image"),
        "script.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
    }
    for name, (content, reason) in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=reason):
            decode(tmp_path / name)
    with pytest.raises(ImageError, match="no such file"):
        decode(tmp_path / "missing.png")
    with pytest.raises(ImageError, match="folder"):
        decode(tmp_path)


def test_a_large_jpeg_may_be_decoded_smaller_but_never_below_twice_the_target(tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    Image.new("RGB", (4000, 3000), RED).save(path)
    width, height = decode(path, target_side=224).size
    assert min(width, height) >= 448
    assert width < 4000
    assert decode(path).size == (4000, 3000)
