"""One image as it comes becomes the picture that a person sees, or a reason why not."""

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_folders import photo
from PIL import ExifTags, Image, ImageOps

from foster.data.photos import decode as decoding
from foster.data.photos.decode import (
    ImageError,
    Resizing,
    decode,
    decoded_by,
    file_pixels,
    shrunk_size,
    upright_size,
)
from foster.data.photos.find import find_photos
from foster.data.photos.reading import read_photos

UPSIDE_DOWN, TURN_RIGHT = 3, 6

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("kind", "orientation"), [*(("JPEG", k) for k in range(1, 9)), ("PNG", 6), ("TIFF", 6), ("WEBP", 6)]
)
def test_pixels_are_what_pillow_gives_after_turning_the_image_upright(
    kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_simplejpeg", lambda: None)
    file, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    noise(60, 90).save(file, kind, exif=exif.tobytes())
    with Image.open(file) as image:
        image.load()
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert np.array_equal(np.asarray(decode(file.getvalue())), np.asarray(upright))
    assert upright_size(file.getvalue()) == upright.size
    smaller = upright.resize(shrunk_size(upright.size, 20), Image.Resampling.BILINEAR, reducing_gap=3.0)
    assert np.array_equal(file_pixels(file.getvalue(), 20), np.asarray(smaller))
    resized = upright.resize((16, 24), Image.Resampling.BILINEAR, reducing_gap=3.0)
    seen = Resizing(24, 16)(decode(file.getvalue(), 24)).permute(1, 2, 0).numpy()
    assert np.array_equal(seen, np.asarray(resized))


def test_a_large_jpeg_is_drafted_by_pillow_to_no_less_than_four_times_the_target(tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    noise(30, 40).resize((4000, 3000)).save(path)
    with Image.open(path) as image:
        image.draft("RGB", (4 * 224, 4 * 224))
        drafted = np.asarray(image.convert("RGB"))
    found = decode(path, target_side=224)
    assert 4 * 224 <= min(found.size) < 3000
    assert np.array_equal(np.asarray(found), drafted)
    assert decode(path).size == (4000, 3000)


@pytest.mark.parametrize("damage", [b"Exif\0\0" + b"\xff" * 40, b"Exif\0\0MM\0*\0\0\xff\xff"])
def test_damaged_exif_does_not_cost_the_photo(damage: bytes) -> None:
    file = io.BytesIO()
    noise(20, 30).save(file, "JPEG", exif=damage)
    assert decode(file.getvalue()).size == (30, 20)
    assert upright_size(file.getvalue()) == (30, 20)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_photos_of_phones_are_read(kind: str) -> None:
    if kind not in decoding.readable_formats():
        pytest.skip("not installed")
    file = io.BytesIO()
    Image.new("RGB", (64, 32), RED).save(file, kind, quality=90)
    image = decode(file.getvalue())
    assert image.size == upright_size(file.getvalue()) == (64, 32)
    assert near(image.getpixel((30, 10)), RED, 12)


def test_a_heic_photo_names_the_extra_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "readable_formats", lambda: ("JPEG", "PNG"))
    with pytest.raises(ImageError, match=r"pip install 'foster-cil\[heic\]'"):
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")


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


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (12_500, 12_001), (1 << 30, 1 << 30)])
def test_an_absurd_size_is_refused_before_decoding_and_without_a_warning(width: int, height: int) -> None:
    photos = find_photos(([png_that_claims(width, height), Image.new("RGB", (4, 4))], ["a", "a"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_photos(photos, Resizing(4, 4))
    assert len(found.stack.tensor) == 1
    assert "too large" in found.unreadable[0].reason


def test_a_jpeg_with_scans_without_end_is_refused_before_decoding(tmp_path: Path) -> None:
    target = io.BytesIO()
    Image.new("L", (40, 30)).save(target, "JPEG", progressive=True)
    content = target.getvalue()
    assert decode(content).size == (40, 30)
    last = content[content.rindex(b"\xff\xda") : -2]
    content = content[:-2] + 100 * last + content[-2:]
    (tmp_path / "long.jpg").write_bytes(content)
    for given in (content, tmp_path / "long.jpg"):
        with pytest.raises(ImageError, match="more than 100 scans"):
            decode(given)
    with pytest.raises(ImageError, match="more than 100 scans"):
        file_pixels(content, 0)


def test_damaged_files_give_a_reason_and_not_a_crash(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(whole, "jpeg")
    damaged = {
        "cut.jpg": (whole.getvalue()[: len(whole.getvalue()) // 2], "truncated"),
        "empty.png": (b"", "the file is empty"),
        "text.png": (b"this is no image", "not an image of a known format"),
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


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_simplejpeg_gives_the_upright_photo_that_pillow_gives(orientation: int) -> None:
    pytest.importorskip("simplejpeg")
    plain = Image.open(io.BytesIO(photo(3, 5, (200, 400))))
    found = file_pixels(photo(3, 5, (200, 400), orientation), 100)
    expected = np.asarray(plain.resize(shrunk_size(plain.size, 100), Image.Resampling.BILINEAR)).astype(int)
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < 6


@pytest.mark.parametrize(("mode", "orientation"), [("RGB", None), ("L", 1), ("CMYK", None), ("RGB", 6)])
def test_simplejpeg_decodes_what_is_upright_and_has_ordinary_colours(
    mode: str, orientation: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg")
    target, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation or 1
    picture = Image.new("RGB", (60, 40), (200, 90, 30)).convert(mode)
    picture.save(target, "JPEG", dpi=(72, 72), **({"exif": exif.tobytes()} if orientation else {}))
    found = decoding._by_simplejpeg(target.getvalue(), 0)
    assert (found is None) == (mode == "CMYK" or orientation == 6)
    for limit in ("MAX_PIXELS", "MAX_SCANS"):
        with monkeypatch.context() as limited:
            limited.setattr(decoding, limit, 0)
            assert decoding._by_simplejpeg(target.getvalue(), 0) is None, "Pillow refuses it"


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [((400, 200), 100, (200, 100)), ((50, 90), 100, (50, 90)), ((400, 200), 0, (400, 200)), ((3000, 2), 1, (1500, 1))],
)
def test_a_photo_is_made_smaller_by_its_shorter_side_and_never_larger(
    size: tuple[int, int], short_side: int, expected: tuple[int, int]
) -> None:
    assert shrunk_size(size, short_side) == expected


@pytest.mark.parametrize("capability", ["AVX2", "DEFAULT"])
def test_a_quickly_decoded_photo_is_resized_within_rounding_of_pillow(
    capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding.torch.backends.cpu, "get_cpu_capability", lambda: capability)
    original = np.asarray(Image.open(io.BytesIO(photo(3, 5, (200, 400)))).convert("RGB")).copy()
    expected = np.asarray(Image.fromarray(original).resize((150, 75), Image.Resampling.BILINEAR)).astype(int)
    found = decoding._resized(original, (150, 75))
    assert found.flags["C_CONTIGUOUS"]
    assert np.abs(found - expected).max() <= (2 if capability == "AVX2" else 0)


GREYS = np.array([[0, 1, 128, 255]])


def greys(given: object) -> list[int]:
    """The first row of the decoded picture, where all three channels are the same."""
    picture = np.asarray(decode(given))
    assert (picture == picture[:, :, :1]).all()
    return picture[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GREYS, [0, 1, 128, 255]),
        (GREYS.astype(">i4"), [0, 1, 128, 255]),
        (torch.from_numpy(GREYS.astype(np.int32)), [0, 1, 128, 255]),
        ((257 * GREYS).astype(np.uint16), [0, 1, 128, 255]),
        ((257 * GREYS).astype(">u2"), [0, 1, 128, 255]),
        (GREYS / 255, [0, 1, 128, 255]),
        (torch.from_numpy(GREYS / 255).to(torch.bfloat16), [0, 1, 128, 255]),
        (np.array([[0.003, 0.999]]), [1, 255]),
        (GREYS > 1, [0, 0, 255, 255]),
        (torch.from_numpy(GREYS > 1), [0, 0, 255, 255]),
    ],
)
def test_the_range_of_pixels_belongs_to_their_type(given: np.ndarray | torch.Tensor, expected: list[int]) -> None:
    assert greys(given) == expected


def test_what_is_made_of_each_picture_has_its_position_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "DECODED_AT_ONCE", 2)
    items = [noise(8, 8), b"broken", *(noise(8, width) for width in (12, 16, 20))]
    batches = list(decoded_by(items, lambda picture: picture.width, 8))
    assert [batch.results for batch in batches] == [{0: 8}, {2: 12, 3: 16}, {4: 20}]
    assert [list(batch.unreadable) for batch in batches] == [[1], [], []]
    assert [batch.num_done for batch in batches] == [2, 4, 5]


def test_a_file_of_32_bit_integers_has_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "deep.pgm"
    path.write_bytes(b"P5 4 1 65535\n" + (257 * GREYS).astype(">u2").tobytes())
    assert greys(path) == [0, 1, 128, 255]
    Image.fromarray(np.array([[0, 70_000]], np.int32)).save(tmp_path / "deeper.tiff")
    with pytest.raises(ImageError, match=r"70000.*65535"):
        decode(tmp_path / "deeper.tiff")
    Image.fromarray(np.array([[-5, 70]], np.int32)).save(tmp_path / "below.tiff")
    with pytest.raises(ImageError, match=r"-5 to 70"):
        decode(tmp_path / "below.tiff")
