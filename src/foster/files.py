"""Files that are whole or not there at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foster.errors import FolderError


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; on success it is flushed to the disk and takes `path`'s place, else removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise unwritable(path, error) from None
    temporary = Path(name)
    try:
        yield temporary
        flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
        flush(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def flush(path: Path) -> None:
    """Make sure that what was written to a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> FolderError:
    """One line that says why `path` cannot be written."""
    return FolderError(f"cannot write '{path}': {error.strerror or error}; nothing that was complete is lost")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
