"""Whatever bytes an image file holds: a picture of the right form, or one line that says why not."""

import io
from functools import cache

import torch
from faults import MANY, time_limit
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, features

from foster.data.photos.decode import MAX_PIXELS, ImageError, Resizing, decode, quiet_pillow, upright_size

SIZE = Resizing(16, 12)

MODES = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "L", "RGBA", "LA", "P", "1", "I;16"),
    "GIF": ("P", "L"),
    "BMP": ("RGB", "L", "P", "1"),
    "TIFF": ("RGB", "L", "RGBA", "CMYK", "I;16"),
    "PPM": ("RGB", "L", "1"),
    "WEBP": ("RGB", "RGBA"),
    "AVIF": ("RGB",),
    "JPEG2000": ("RGB", "L"),
}
OPTIONAL = {"WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}


@cache
def originals() -> list[bytes]:
    """One small file of every format and mode that can be written here."""
    picture = Image.effect_noise((40, 30), 60)
    made = []
    for kind, modes in MODES.items():
        if kind in OPTIONAL and not features.check(OPTIONAL[kind]):
            continue
        for mode in modes:
            buffer = io.BytesIO()
            image = picture.convert("I").convert(mode) if mode == "I;16" else picture.convert("RGB").convert(mode)
            image.save(buffer, kind)
            made.append(buffer.getvalue())
    return made


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A file that was an image once: cut, flipped, stretched, mostly near its beginning, where sizes stand."""
    content = bytearray(draw(st.sampled_from(originals())))
    for _ in range(draw(st.integers(1, 8))):
        near = draw(st.booleans())
        position = draw(st.integers(0, max(0, min(len(content), 100 if near else len(content)) - 1)))
        kind = draw(st.sampled_from(["flip", "set", "cut", "insert", "repeat"]))
        if kind == "flip" and content:
            content[position] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and content:
            content[position] = draw(st.sampled_from([0, 1, 127, 128, 255]))
        elif kind == "cut":
            del content[position:]
        elif kind == "insert":
            content[position:position] = draw(st.binary(max_size=8))
        else:
            content[position:position] = content[position : position + 64]
    return bytes(content)


def check(content: bytes) -> bool:
    """Whether it is a picture; anything else is a reason in a few words."""
    try:
        with time_limit(20), quiet_pillow():
            image = SIZE(decode(content, target_side=16))
            assert image.dtype is torch.uint8
            assert image.shape == (3, 16, 12)
            width, height = upright_size(content)
            assert 0 < width * height <= MAX_PIXELS
        reason = ""
    except ImageError as error:
        reason = str(error)
    assert len(reason) < 500
    assert "\n" not in reason
    return not reason


def test_every_format_is_read_when_it_is_whole() -> None:
    assert len(originals()) >= 20
    assert all(check(content) for content in originals())


@MANY
@given(content=damaged_files())
@example(content=b"")
@example(content=b"\x89PNG\r\n\x1a\n" + b"\0" * 8)
@example(content=b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0\0\0\0\0")
@example(content=b"P6 99999999999 99999999999 255\n")
@example(content=b"P6 -1 -1 255\n")
@example(content=b"GIF89a\xff\xff\xff\xff\0\0\0,")
@example(content=b"BM" + b"\xff" * 60)
@example(content=b"II*\0" + b"\xff" * 40)
@example(content=b"RIFF\xff\xff\xff\xffWEBPVP8L\xff\xff\xff\xff/")
def test_a_damaged_image_is_read_or_refused_with_a_reason(content: bytes) -> None:
    check(content)
