"""Large images: what they need on the way to RGB is bounded, and the picture is the same."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from foster.data.photos import decode as decoding
from foster.data.photos.decode import ImageError, decode
from foster.data.photos.resize import Resizing

RED = (255, 0, 0)


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
