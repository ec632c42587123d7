"""Photos that people labelled, in the folders that `foster learn` reads, and photos that wait for a label.

```
FEEDBACK/cat/3f0c9d1e52ab7f64.jpg    class name / start of the hash of the file, with the ending of its format
```
"""

import io
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from PIL import Image
from pydantic import BaseModel, Field

from foster.data.photos.decode import MAX_FILE_BYTES, ImageError, decode, image_file, readable_formats, upright_size
from foster.data.photos.find import find_files, folder_name, shown
from foster.errors import FolderError, explained
from foster.learner.prediction import check_not_unknown
from foster.system.files import read_limited, sha256, write_bytes

ENDINGS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}
"""File endings of formats whose name is not the usual ending."""

OWN_NAME = re.compile(r"[0-9a-f]{16}\.[a-z0-9]{2,4}")
MOST_SHOWN = 1000
PREVIEW_SIDE = 1280


class StoredPhoto(BaseModel):
    photo: str = Field(description="The photo's name, to remove it again.")
    label: str
    before: str | None = Field(description="The class that it had before, if it was stored already.")


def photo_name(content: bytes) -> str:
    """The name of an image file in the folder: the start of its hash, so the same file has the same name."""
    with Image.open(io.BytesIO(content), formats=readable_formats()) as image:
        form = image.format or ""
    return f"{sha256(content)[:16]}.{ENDINGS.get(form, form.lower())}"


class FeedbackFolder:
    """A folder with a subfolder for each class. A photo is in one class; users may move photos away at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        with explained(FolderError, f"cannot use '{folder}' for feedback"):
            folder.mkdir(parents=True, exist_ok=True)

    def store(self, content: bytes, label: str) -> StoredPhoto:
        """Store an image file unchanged. Raises DataError or FolderError."""
        label, photo = folder_name(label, "label"), photo_name(content)
        check_not_unknown(label, "label")
        with self._lock:
            path, target = self._find(photo), self._folder / label / photo
            if path is None:
                write_bytes(target, content)
            elif path != target:
                with explained(FolderError, f"cannot move '{path}'"):
                    target.parent.mkdir(exist_ok=True)
                    path.rename(target)
                self._drop_empty(path.parent)
        return StoredPhoto(photo=photo, label=label, before=path.parent.name if path else None)

    def remove(self, photo: str) -> bool:
        """Remove a photo; False if it is not there."""
        if not OWN_NAME.fullmatch(photo):
            return False
        with self._lock:
            path = self._find(photo)
            if path is None:
                return False
            with explained(FolderError, f"cannot remove '{path}'"):
                path.unlink()
            self._drop_empty(path.parent)
            return True

    def photos(self) -> dict[str, list[str]]:
        """The names of the photos of each class that has some."""
        photos: dict[str, list[str]] = {}
        for folder in self._classes():
            with suppress(FileNotFoundError):
                photos[folder.name] = [file.name for file in folder.iterdir() if not file.name.startswith(".")]
        return {label: names for label, names in sorted(photos.items()) if names}

    def _classes(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from (path for path in self._folder.iterdir() if path.is_dir() and not path.name.startswith("."))

    def _find(self, photo: str) -> Path | None:
        return next((path for folder in self._classes() if (path := folder / photo).is_file()), None)

    @staticmethod
    def _drop_empty(folder: Path) -> None:
        with suppress(OSError):
            folder.rmdir()


class PhotoToLabel(BaseModel):
    photo: str = Field(description="The photo's name in the feedback folder.")
    name: str = Field(description="The name of its file.")


class PhotosToLabel:
    """The first 1,000 readable photos of a folder, in the order of their names. The folder is never changed."""

    def __init__(self, folder: Path, feedback: FeedbackFolder) -> None:
        self._folder = folder
        self._feedback = feedback

    def all(self) -> dict[str, Path]:
        """The file of every photo, labelled or not, by its name in the feedback folder."""
        files: dict[str, Path] = {}
        for path in find_files(self._folder).images[:MOST_SHOWN]:
            with suppress(OSError):
                facts = path.stat()
                photo = _photo(path, facts.st_mtime_ns, facts.st_size)
                if photo is not None:
                    files.setdefault(photo, path)
        return files

    def left(self) -> list[PhotoToLabel]:
        """The photos without a label."""
        labelled = {photo for photos in self._feedback.photos().values() for photo in photos}
        files = self.all().items()
        return [PhotoToLabel(photo=photo, name=shown(path.name)) for photo, path in files if photo not in labelled]

    def content(self, photo: str) -> bytes | None:
        """The content of a photo's file; None if there is no such photo."""
        path = self.all().get(photo)
        try:
            return None if path is None else read_limited(path, MAX_FILE_BYTES)
        except OSError:
            return None


@lru_cache(MOST_SHOWN)
def _photo(path: Path, modified: int, num_bytes: int) -> str | None:
    """The photo's name in the feedback folder; None if it cannot be read. A file is read once for each change."""
    try:
        content = read_limited(path, MAX_FILE_BYTES)
        upright_size(content)
        return photo_name(content)
    except (OSError, ImageError):
        return None


def preview(content: bytes) -> bytes:
    """An image file as a JPEG of at most 1,280 pixels a side, which any browser can show. Raises ImageError."""
    picture = decode(content, target_side=PREVIEW_SIDE // 2)
    picture.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BILINEAR)
    return image_file(picture, "JPEG", quality=85)
