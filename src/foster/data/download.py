"""Published files: fetched once, checked against their MD5 sums, unpacked by name and nothing else."""

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from foster.data.catalogue import Published
from foster.errors import DataError

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the bytes to come in all, where the server says so."""

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0


def find_or_fetch(published: Published, data_dir: Path, progress: Progress | None = None) -> Path:
    """The folder that holds all published files: found, unpacked from the archive, or downloaded first.

    `data_dir` is that folder or its parent. An archive that lies in it is used before the network is.
    """
    parent = data_dir.parent if data_dir.name == published.folder else data_dir
    try:
        for folder in (data_dir / published.folder, data_dir):
            if all((folder / name).is_file() for name in published.files):
                return folder
        archives = [folder / published.archive for folder in (data_dir, parent)]
        archive = next((path for path in archives if path.is_file()), None)
    except OSError as error:
        raise DataError(f"cannot read {data_dir}: {_reason(error)}") from error
    if archive is None:
        archive = parent / published.archive
        fetch(published, archive, progress)
    else:
        check_md5(archive, published.archive_md5)
    unpack(published, archive, parent)
    return parent / published.folder


def fetch(published: Published, target: Path, progress: Progress | None = None) -> None:
    """Download the archive to `target`, which appears only when it is complete and its MD5 sum is right."""
    try:
        # Opened before anything is written: without a network no folder is left behind.
        with urllib.request.urlopen(published.address, timeout=_TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            num_total = int(length) if length and length.isdigit() else None
            with _complete_or_absent(target) as (file, temporary):
                num_received = 0
                while chunk := response.read(_CHUNK_BYTES):
                    file.write(chunk)
                    num_received += len(chunk)
                    if progress is not None:
                        progress(num_received, num_total)
                file.flush()
                check_md5(temporary, published.archive_md5, name=f"the download of {published.address}")
    except (OSError, http.client.HTTPException) as error:
        raise DataError(_how_to_provide(published, target.parent, error)) from error


def unpack(published: Published, archive: Path, parent: Path) -> None:
    """Write the published files of `archive` into `parent / published.folder`; all other members are left alone."""
    wanted = {f"{published.folder}/{name}": parent / published.folder / name for name in published.files}
    try:
        # Members are copied to paths of our own: names, links and modes in the archive decide nothing.
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                target = wanted.get(member.name)
                content = members.extractfile(member) if target and member.isreg() else None
                if target is None or content is None:
                    continue
                with _complete_or_absent(target) as (file, _):
                    shutil.copyfileobj(content, file, _CHUNK_BYTES)
                del wanted[member.name]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"cannot unpack {archive} into {parent}: {_reason(error)}") from error
    if wanted:
        raise DataError(f"{archive} does not hold the files {', '.join(wanted)}")


def check_md5(path: Path, expected: str, name: str | None = None) -> None:
    """Refuse a file that is not, byte for byte, the published one; `name` says what to call it."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {_reason(error)}") from error
    if found != expected:
        raise DataError(f"{name or path} is damaged or not the published file: MD5 is {found}, not {expected}")


@contextmanager
def _complete_or_absent(target: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A temporary file beside `target` that takes its name on success and is removed otherwise.

    The temporary name is unique, so several processes may do the same work at once.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise DataError(f"cannot write into {target.parent}: {_reason(error)}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _how_to_provide(published: Published, parent: Path, error: Exception) -> str:
    files = ", ".join(published.files)
    return (
        f"cannot download {published.address} ({_reason(error)}); put {published.archive} into {parent}, "
        f"or the files {files} into {parent / published.folder}"
    )


def _reason(error: BaseException) -> str:
    """The error's own words on one line."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
