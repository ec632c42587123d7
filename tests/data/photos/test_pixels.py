"""One encoded photo becomes upright pixels, whichever library decodes it."""

import io

import numpy as np
import pytest
from photo_folders import photo
from PIL import Image

from foster.data.photos import pixels
from foster.data.photos.decode import ImageError


@pytest.mark.parametrize("has_simplejpeg", [True, False])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photo_is_upright_and_small_whatever_decodes_it(
    has_simplejpeg: bool, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_simplejpeg:
        monkeypatch.setattr(pixels, "_simplejpeg", lambda: None)
    plain = Image.open(io.BytesIO(photo(3, 5, (200, 400))))
    found = pixels.pixels_of(photo(3, 5, (200, 400), orientation), 100)
    assert min(found.shape[:2]) == 100
    width, height = pixels.shrunk_size(plain.size, 100)
    expected = np.asarray(plain.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < 6


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [((400, 200), 100, (200, 100)), ((50, 90), 100, (50, 90)), ((400, 200), 0, (400, 200)), ((3000, 2), 1, (1500, 1))],
)
def test_a_photo_is_made_smaller_by_its_shorter_side_and_never_larger(
    size: tuple[int, int], short_side: int, expected: tuple[int, int]
) -> None:
    assert pixels.shrunk_size(size, short_side) == expected


@pytest.mark.parametrize("capability", ["AVX2", "DEFAULT"])
def test_a_quickly_decoded_photo_is_resized_within_rounding_of_pillow(
    capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels.torch.backends.cpu, "get_cpu_capability", lambda: capability)
    original = np.asarray(Image.open(io.BytesIO(photo(3, 5, (200, 400)))).convert("RGB")).copy()
    expected = np.asarray(Image.fromarray(original).resize((150, 75), Image.Resampling.BILINEAR)).astype(int)
    found = pixels._resized(original, (150, 75))
    assert found.flags["C_CONTIGUOUS"]
    assert np.abs(found - expected).max() <= (2 if capability == "AVX2" else 0)
    assert pixels._resized(original, (original.shape[1], original.shape[0])) is original


def test_a_photo_that_is_encoded_again_has_the_size_in_use_and_looks_the_same() -> None:
    content = photo(3, 5, (200, 400), orientation=6)
    again = pixels.jpeg_of(pixels.pixels_of(content, 100))
    assert again.startswith(b"\xff\xd8\xff")
    plain, kept = pixels.pixels_of(content, 100).astype(int), pixels.pixels_of(again, 0)
    assert kept.shape == plain.shape
    assert np.abs(kept - plain).mean() < 2


def test_an_empty_file_is_no_photo() -> None:
    with pytest.raises(ImageError, match="empty"):
        pixels.pixels_of(b"", 100)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("orientation", [None, 1, 6])
def test_a_jpeg_is_decoded_quickly_unless_it_may_be_turned_or_has_other_colours(
    mode: str, orientation: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg")
    target, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation or 1
    picture = Image.new("RGB", (60, 40), (200, 90, 30)).convert(mode)
    picture.save(target, "JPEG", dpi=(72, 72), **({"exif": exif.tobytes()} if orientation else {}))
    opened = []
    see = pixels.Image.open

    def counted(*arguments: object, **options: object) -> object:
        opened.append(1)
        return see(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pixels.Image, "open", counted)
    found = pixels._quick(target.getvalue(), 0)
    assert (found is None) == (mode == "CMYK" or orientation == 6)
    assert bool(opened) == (orientation is not None and mode != "CMYK")
