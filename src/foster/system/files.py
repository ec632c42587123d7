"""Files that are whole or not there at all, and files that are nothing but files."""

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from foster.errors import FolderError, words_of

_CHUNK_BYTES = 1 << 20
_NO_FOLDER_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


@contextmanager
def writing(path: Path, *, expected: bytes | None = None, is_folder_flushed: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`; on success it is flushed to the disk and takes `path`'s place, else removed.

    It is no success where it should hold `expected` and reads back as something else. Without `is_folder_flushed` the
    new name may be lost when the machine fails, until the folder is flushed.
    """
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
        # Made here, not by the writer, so that it is new, ours, and readable by whom the umask allows.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        flush(temporary)
        if expected is not None and not _holds(temporary, expected):
            raise OSError(errno.EIO, "what was written does not read back the same")
        temporary.replace(path)
        if is_folder_flushed:
            flush(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from None
        raise


def user_path(path: str | Path) -> Path:
    """The path that a person means: `~` and `~name` are home folders; where nobody has that name, it is a file's."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_temporary(path: Path) -> bool:
    """Whether `path` is one that `writing` made, and a crash may have left behind."""
    return path.name.startswith(".") and path.name.endswith(".part")


def remove_temporaries(folder: Path, name: str | None = None) -> None:
    """Take away what a killed writer left in `folder`, or what it left of the file `name` alone.

    Only whoever holds the lock of the folder, or of that file, may do this.
    """
    start = "." if name is None else f".{name}."
    with suppress(OSError):
        for path in folder.iterdir():
            if is_temporary(path) and path.name.startswith(start):
                path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, *, is_verified: bool = False, is_folder_flushed: bool = True) -> None:
    """Write a whole file. With `is_verified` it takes its name only once it was read back and holds `data`."""
    expected = data if is_verified else None
    with writing(path, expected=expected, is_folder_flushed=is_folder_flushed) as temporary:
        _write(temporary, 0, data)


def write_text(path: Path, text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        part = ascii(text[max(0, error.start - 20) : error.end + 20])
        raise FolderError(f"cannot write '{path}': {part} is not valid text") from None
    write_bytes(path, data)


def write_json(path: Path, data: Any, *, is_verified: bool = False) -> None:
    """Write `data` as JSON; what is no valid Unicode, as in the names of odd files, is written as JSON's escapes."""
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"), is_verified=is_verified)


def write_new(path: Path, data: bytes) -> None:
    """A file that is not there yet, in a folder that nobody reads yet; it is flushed by whoever ends that folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, os.O_CREAT | os.O_EXCL, data)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file in one go: a crash or a full disk can only cut this last line."""
    with written(path):
        # A link could lead out of the folder, and a pipe could be waited for without end.
        _write(path, os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, (line + "\n").encode())


def _write(path: Path, flags: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """All of `data`, though the operating system may take it in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def open_plain(name: str, flags: int) -> int:
    """What `open(..., opener=open_plain)` opens: an ordinary file, or OSError.

    A link could lead out of the folder, a pipe could be waited for without end, and a device never ends.
    """
    return open_ordinary(name, flags | os.O_NOFOLLOW)


def read_plain(path: Path, *, max_bytes: int | None = None, may_be_link: bool = False) -> bytes:
    """The content of an ordinary file of at most `max_bytes`, or OSError. A user's own files may be links to some."""
    opener = open_ordinary if may_be_link else open_plain
    with open(path, "rb", opener=opener) as file:
        if max_bytes is not None and os.fstat(file.fileno()).st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes")
        return file.read()


def open_ordinary(name: str, flags: int) -> int:
    """As `open_plain`, but for a user's own files, which may be links."""
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK)
    except OSError as error:
        if flags & os.O_NOFOLLOW and error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is not an ordinary file")


def flush(path: Path) -> None:
    """Make sure that what was written to a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; they need not.
        if not (path.is_dir() and error.errno in _NO_FOLDER_FLUSH):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """What cannot be written inside is one line about `path`."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> FolderError:
    """One line that says why `path` cannot be written."""
    return FolderError(f"cannot write '{path}': {words_of(error)}; nothing that was complete is lost")


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file holds exactly `data`, read from the disk where the operating system lets us ask for that."""
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        position = 0
        while chunk := file.read(_CHUNK_BYTES):
            if data[position : position + len(chunk)] != chunk:
                return False
            position += len(chunk)
    return position == len(data)
