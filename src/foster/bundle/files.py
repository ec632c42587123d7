"""Folders that are written completely or not at all, and files that are checked by their hash."""

import hashlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foster.errors import DataError, FolderError, words_of
from foster.system.files import flush, read_limited, unwritable, written

MANIFEST, WEIGHTS = "bundle.json", "network.safetensors"
"""The files that make a folder a bundle."""

SAFE_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class BundleError(DataError):
    """A bundle is missing, damaged, changed by somebody else, or of another schema version."""


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`; on success it is flushed to the disk and takes the name `folder`."""
    check_free(folder)
    with written(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.part"
        temporary.mkdir()
    try:
        yield temporary
        for path in temporary.rglob("*"):
            flush(path)
        flush(temporary)
        check_free(folder)
        temporary.rename(folder)
        flush(folder.parent)
    except OSError as error:
        raise unwritable(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary folders of killed writers of the bundle `folder`. The caller must hold its lock."""
    left = re.compile(rf"\.{re.escape(folder.name)}\.[a-z0-9_]{{8}}\.part")
    with suppress(OSError):
        for path in folder.parent.iterdir():
            if left.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)


def check_free(folder: Path) -> None:
    """Refuse a place that is taken, lies in a bundle or cannot be written to, before anything is trained."""
    if folder.exists() or folder.is_symlink():
        raise FolderError(f"'{folder}' already exists; a bundle is never overwritten, choose a new name")
    check_outside(folder)
    parent = next(parent for parent in folder.absolute().parents if parent.exists())
    with written(folder):
        Path(tempfile.mkdtemp(dir=parent)).rmdir()


def check_outside(path: Path) -> None:
    """Refuse a path inside a bundle, which is never changed."""
    try:
        parents = path.resolve().parents
    except (OSError, RuntimeError):
        raise FolderError(f"cannot write '{path}': its place is a link that leads to itself") from None
    own_files = (MANIFEST, WEIGHTS)
    around = next((parent for parent in parents if all((parent / name).is_file() for name in own_files)), None)
    if around is not None:
        raise FolderError(f"'{path}' lies inside the bundle '{around}', which is never changed; choose another place")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def real_folder(bundle: Path) -> Path:
    """The folder behind a link, resolved once: a link that moves while a bundle is read would mix two bundles."""
    try:
        folder = bundle.resolve(strict=True)
    except (OSError, RuntimeError):
        raise BundleError(f"there is no bundle '{bundle}'") from None
    if not folder.is_dir():
        raise BundleError(f"'{bundle}' is not a bundle folder")
    return bundle if folder == bundle.absolute() else folder


def read_checked(bundle: Path, name: str, num_bytes: int, digest: str) -> bytes:
    """The content of one of a bundle's files, which must be inside it, whole and unchanged."""
    path = bundle / name
    try:
        if path.resolve(strict=True) != bundle.resolve() / name:
            raise BundleError(f"'{name}' in bundle '{bundle}' is a link that leads out of it")
        size = path.stat().st_size
        if size != num_bytes:
            what = "truncated" if size < num_bytes else "changed"
            raise BundleError(f"'{name}' in bundle '{bundle}' is {what}: {size:,} bytes instead of {num_bytes:,}")
        content = read_limited(path, num_bytes)
    except FileNotFoundError:
        raise BundleError(f"'{name}' is missing in bundle '{bundle}'") from None
    except (OSError, RuntimeError) as error:
        raise BundleError(f"cannot read '{name}' in bundle '{bundle}': {words_of(error)}") from None
    if sha256(content) != digest:
        raise BundleError(f"'{name}' in bundle '{bundle}' is damaged or was changed: its hash differs")
    return content


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
