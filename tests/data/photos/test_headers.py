"""What an image file claims in its first bytes."""

import io

import pytest
from PIL import Image

from foster.data.photos.headers import claim_of


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0MM\0*\0\0\0\x08\0\0"])
def test_what_a_webp_file_claims_is_what_it_holds(lossless: bool, exif: bytes) -> None:
    file = io.BytesIO()
    Image.new("RGB", (37, 11)).save(file, "webp", lossless=lossless, exif=exif)
    file.seek(0)
    assert claim_of(file) == (len(file.getvalue()), (37, 11), False)
    assert file.tell() == 0


@pytest.mark.parametrize(
    ("head", "is_heic"), [(b"ftypheic", True), (b"ftyphevc", True), (b"ftypavif", False), (b"JUNKheic", False)]
)
def test_a_photo_of_a_phone_claims_to_be_one(head: bytes, is_heic: bool) -> None:
    assert claim_of(io.BytesIO(b"\0\0\0\x18" + head)).is_heic == is_heic
