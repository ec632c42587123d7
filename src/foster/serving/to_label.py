"""Photos that wait for a label: those of a folder that are not in the feedback folder yet."""

import io
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from foster.data.photos.decode import ImageError, decode, upright_size
from foster.data.photos.find import find_files, shown
from foster.serving.feedback import FeedbackFolder, photo_name
from foster.system.files import read_plain

MOST_SHOWN = 1000
PREVIEW_SIDE = 1280


class PhotoToLabel(NamedTuple):
    """`photo` is its name in the feedback folder, `name` that of its file."""

    photo: str
    name: str
    path: Path


class PhotosToLabel:
    """The first 1,000 readable photos of a folder, in the order of their names. The folder is never changed."""

    def __init__(self, folder: Path, feedback: FeedbackFolder) -> None:
        self._folder = folder
        self._feedback = feedback

    def all(self) -> list[PhotoToLabel]:
        """Every photo once, also those that have a label by now."""
        by_hash: dict[str, PhotoToLabel] = {}
        for path in find_files(self._folder).images[:MOST_SHOWN]:
            with suppress(OSError, ImageError):
                facts = path.stat()
                photo = _photo(path, facts.st_mtime_ns, facts.st_size)
                by_hash.setdefault(photo, PhotoToLabel(photo, shown(path.name), path))
        return list(by_hash.values())

    def left(self) -> list[PhotoToLabel]:
        """Those without a label."""
        return [entry for entry in self.all() if self._feedback.label_of(entry.photo) is None]

    def content(self, photo: str) -> bytes | None:
        """The file of a photo; None where there is no such one."""
        path = next((entry.path for entry in self.all() if entry.photo == photo), None)
        try:
            return None if path is None else read_plain(path, may_be_link=True)
        except OSError:
            return None


@lru_cache(MOST_SHOWN)
def _photo(path: Path, modified: int, num_bytes: int) -> str:
    """The photo's name in the feedback folder; a file is read again where it has changed.

    Raises OSError and ImageError.
    """
    content = read_plain(path, may_be_link=True)
    upright_size(content)
    return photo_name(content)


def preview(content: bytes) -> bytes:
    """An image file as a JPEG of at most 1,280 pixels a side, which any browser can show. Raises ImageError."""
    picture = decode(content, target_side=PREVIEW_SIDE // 2)
    picture.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return file.getvalue()
