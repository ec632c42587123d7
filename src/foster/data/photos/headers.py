"""What an image file says of itself in its first bytes, before a library sets memory aside for it."""

import io
from typing import BinaryIO, NamedTuple


class Claim(NamedTuple):
    """How long a file is, the width and height that a WebP file says it has, since its decoder believes them at once,
    and whether it is a phone's HEIC photo."""

    num_bytes: int
    size: tuple[int, int] | None
    is_heic: bool


def claim_of(file: BinaryIO) -> Claim:
    """Of a file that stands at its start, and does so again afterwards."""
    num_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(30)
    file.seek(0)
    return Claim(num_bytes, _webp_size(head), head[4:8] == b"ftyp" and head[8:11] in (b"hei", b"hev"))


def _webp_size(head: bytes) -> tuple[int, int] | None:
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return None
    bits = _number(head[21:25])
    sizes = {
        b"VP8X": (_number(head[24:27]) + 1, _number(head[27:30]) + 1),
        b"VP8L": ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1),
        b"VP8 ": (_number(head[26:28]) & 0x3FFF, _number(head[28:30]) & 0x3FFF),
    }
    return sizes.get(head[12:16])


def _number(part: bytes) -> int:
    return int.from_bytes(part, "little")
