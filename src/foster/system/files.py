"""Files that are written completely or not at all, and files that are read up to a limit of bytes."""

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from foster.errors import FolderError, words_of


def user_path(path: str | Path) -> Path:
    """A path as a user gives it: `~` and `~name` are home folders; if there is no such user, it is a file name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def check_ending(path: Path, *endings: str) -> None:
    """Raise FolderError if a file that will be written has none of these endings. Called before it is computed."""
    if path.is_dir() or path.suffix.lower() not in endings:
        raise FolderError(f"cannot write '{path}': name a file that ends in {', '.join(endings)}")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    with open(path, "rb", opener=_open_at_once) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_at_once(name: str, flags: int) -> int:
    """Open a file; a pipe without a writer does not block."""
    return os.open(name, flags | os.O_NONBLOCK)


def read_limited(path: Path, max_bytes: int, *, start: int = 0) -> bytes:
    """The content of a file from byte `start` on; OSError if it has more than `max_bytes`, or is a pipe.

    Files that may come from a stranger are read by this function or opened by `open_limited`: they can neither exhaust
    the memory nor block.
    """
    with open_limited(path, max_bytes, start=start) as file:
        return file.read(max(0, os.fstat(file.fileno()).st_size - start))


@contextmanager
def open_limited(path: Path, max_bytes: int, *, start: int = 0) -> Iterator[BufferedReader]:
    """A regular file, open for reading at byte `start`; OSError if more than `max_bytes` follow."""
    with open(path, "rb", opener=_open_at_once) as file:
        num_bytes = os.fstat(file.fileno()).st_size - start
        if num_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"it has {num_bytes:,} bytes, more than {max_bytes:,}", str(path))
        file.seek(start)  # fails for a pipe
        yield file


def is_temporary(path: Path) -> bool:
    """Whether `path` is a temporary file of `write_bytes`, which a crash may have left behind."""
    return path.name.startswith(".") and path.name.endswith(".part")


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files of killed processes in `folder`. Only the holder of the folder's lock may do this."""
    with suppress(OSError):
        for path in folder.iterdir():
            if is_temporary(path):
                path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, *, is_folder_flushed: bool = True) -> None:
    """Write a whole file: under a temporary name beside `path`, flushed to the disk, then renamed.

    Without `is_folder_flushed` the new name may be lost when the machine fails, until the folder is flushed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    with explained_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(temporary, os.O_CREAT | os.O_EXCL, data)
            flush(temporary)
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if is_folder_flushed:
            flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`; characters that are not valid Unicode, as in some file names, are written as escapes."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def write_new(path: Path, data: bytes) -> None:
    """Write a new file into a folder that nobody reads yet. It is not flushed: the caller flushes the whole folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, os.O_CREAT | os.O_EXCL, data)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file in one write: a crash or a full disk can only cut this last line."""
    with explained_write_errors(path):
        # In a stranger's folder, a link could lead out of it.
        _write(path, os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, (line + "\n").encode())


def _write(path: Path, flags: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, 0o666)
    try:
        view = memoryview(data)
        while view:  # the operating system may take it in parts
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def flush(path: Path) -> None:
    """Flush a file or folder to the disk; some file systems cannot flush a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside into a FolderError: `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: Exception) -> FolderError:
    """The error that says why `path` cannot be written."""
    return FolderError(f"cannot write '{path}': {words_of(error)}; complete files are not lost")
