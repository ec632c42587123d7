"""Published files: fetched once, checked against their MD5 sums, unpacked by name and nothing else.

They come piece by piece: a connection that breaks is tried again, and a signal ends any wait.
"""

import hashlib
import http.client
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from foster import events
from foster.errors import DataError, explained, words_of
from foster.settings.datasets import Published
from foster.system.files import remove_temporaries, write_bytes, writing, written
from foster.system.locking import HeldError, locked
from foster.system.signals import StopRequest

MAX_PIECE_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0
MAX_BYTES = 2**30
"""More than any archive has that is fetched."""
NUM_RETRIES, SECONDS_BEFORE_RETRY = 2, 1.0
SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class Follower:
    """Who follows what takes long, such as a download: is told how far it is, and may ask to stop it."""

    listener: events.Listener = events.ignore
    stop: StopRequest = field(default_factory=StopRequest)

    def warn(self, message: str) -> None:
        self.listener(events.Warned(message))


def find_or_fetch(published: Published, data_dir: Path, follower: Follower | None = None) -> Path:
    """The folder that holds all published files: found, unpacked from the archive, or downloaded first.

    `data_dir` is that folder or its parent. An archive that lies in it is used before the network is. Of several
    processes that miss the files, one fetches them and the others wait.
    """
    follower = follower or Follower()
    parent = data_dir.parent if data_dir.name == published.folder else data_dir
    if complete := _complete_folder(published, data_dir):
        return complete
    folder = parent / published.folder
    with _made_for_a_reason(folder), _locked(published, parent, follower):
        # Once more: another process may have come first.
        if complete := _complete_folder(published, data_dir):
            return complete
        with written(folder):
            folder.mkdir(exist_ok=True)
        # What a process that was killed had begun to write.
        remove_temporaries(parent, published.archive)
        for name in published.files:
            remove_temporaries(folder, name)
        archives = [folder / published.archive for folder in (data_dir, parent)]
        archive = next((path for path in archives if path.is_file()), None)
        if archive is None:
            archive = parent / published.archive
            fetch(published, archive, follower)
        else:
            check_md5(archive, published.archive_md5)
        unpack(published, archive, parent, follower.stop)
    return folder


def fetch(published: Published, target: Path, follower: Follower) -> None:
    """Download the archive to `target`, which appears only when it is complete and its MD5 sum is right."""
    tell, name = follower.listener, published.archive
    tell(events.Downloading(name, 0, None))
    try:
        with writing(target) as temporary:
            with temporary.open("r+b") as file:
                for piece in pieces(published.address, follower.stop):
                    file.seek(piece.start)
                    file.write(piece.content)
                    tell(events.Downloading(name, piece.end, piece.num_total))
            if wrong := _wrong_md5(temporary, published.archive_md5):
                raise DataError(f"the download of {published.address} {wrong}")
    except DataError as error:
        files, folder = ", ".join(published.files), target.parent / published.folder
        raise DataError(f"{error}; put {name} into {target.parent}, or the files {files} into {folder}") from error


def unpack(published: Published, archive: Path, parent: Path, stop: StopRequest) -> None:
    """Write the published files of `archive` into `parent / published.folder`; all other members are left alone."""
    wanted = {f"{published.folder}/{name}": parent / published.folder / name for name in published.files}
    try:
        # Members are copied to paths of our own: names, links and modes in the archive decide nothing.
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                stop.raise_if_set()
                target = wanted.get(member.name)
                content = members.extractfile(member) if target and member.isreg() else None
                if target is None or content is None:
                    continue
                write_bytes(target, content.read())
                del wanted[member.name]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"cannot unpack {archive} into {parent}: {reason(error)}") from error
    if wanted:
        raise DataError(f"{archive} does not hold the files {', '.join(wanted)}")


def check_md5(path: Path, expected: str) -> None:
    """Refuse a file in the data folder that is not, byte for byte, the published one."""
    if wrong := _wrong_md5(path, expected):
        raise DataError(f"{path} {wrong}; remove it, and it is downloaded again")


def _wrong_md5(path: Path, expected: str) -> str:
    """What to say of a file with another MD5 sum; empty where it is right."""
    with explained(DataError, f"cannot read {path}"), path.open("rb") as file:
        actual = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return "" if actual == expected else f"is damaged or not the published file: MD5 is {actual}, not {expected}"


def _complete_folder(published: Published, data_dir: Path) -> Path | None:
    folders = (data_dir / published.folder, data_dir)
    with explained(DataError, f"cannot read {data_dir}"):
        return next((folder for folder in folders if all((folder / name).is_file() for name in published.files)), None)


@contextmanager
def _made_for_a_reason(folder: Path) -> Iterator[None]:
    """Where the work inside fails, the folders that it made and left empty go again."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in absent:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def _locked(published: Published, parent: Path, follower: Follower) -> Iterator[None]:
    """One process at a time; the others say once that they wait, and can be stopped."""
    is_held = has_spoken = False
    with ExitStack() as stack:
        while not is_held:
            try:
                stack.enter_context(locked(parent, f".{published.folder}.lock"))
                is_held = True
            except HeldError as held:
                if not has_spoken:
                    follower.listener(events.Waiting(f"waiting for {published.archive}: {held}"))
                has_spoken = True
                with follower.stop.at_once():
                    time.sleep(SECONDS_BETWEEN_LOOKS)
        yield


class Piece(NamedTuple):
    """Some bytes of a file, where in it they belong, and how many it has in all, if the server says so."""

    start: int
    content: bytes
    num_total: int | None

    @property
    def end(self) -> int:
        return self.start + len(self.content)


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows a server that names another place, but never from an encrypted connection to a plain one."""

    def redirect_request(self, req: urllib.request.Request, *given: Any) -> urllib.request.Request | None:
        made = super().redirect_request(req, *given)
        if made is not None and req.type == "https" and made.type != "https":
            raise urllib.error.URLError(f"it leads to {made.full_url[:200]}, which is not encrypted")
        return made


def pieces(address: str, stop: StopRequest, max_bytes: int = MAX_BYTES) -> Iterator[Piece]:
    """What the server sends, in order, up to `max_bytes`.

    Where a connection broke, the next one goes on, or begins at the start if the server can do no other; a DataError
    says that none came to the end.
    """
    num_received = 0
    for num_left in range(NUM_RETRIES, -1, -1):
        try:
            for piece in _sent(address, num_received, stop):
                if max(piece.end, piece.num_total or 0) > max_bytes:
                    raise DataError(f"cannot download {address} (it has more than {max_bytes:,} bytes)")
                yield piece
                num_received = piece.end
            return
        except (OSError, http.client.HTTPException) as error:
            # An address from which nothing came at all is wrong or out of reach: waiting would not change that.
            if not num_left or not num_received:
                raise DataError(f"cannot download {address} ({reason(error)})") from error
        with stop.at_once():
            time.sleep(SECONDS_BEFORE_RETRY)


def _sent(address: str, start: int, stop: StopRequest) -> Iterator[Piece]:
    """What one connection brings, from `start` on if the server supports that."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    with stop.at_once():
        response = urllib.request.build_opener(_Encrypted).open(request, timeout=TIMEOUT_SECONDS)
    with response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = response.headers.get("Content-Length")
        num_total = start + int(length) if length and length.isdigit() else None
        while True:
            # Not `read`, which waits until it has all that it was asked for.
            with stop.at_once():
                content = response.read1(MAX_PIECE_BYTES)
            if not content:
                break
            yield Piece(start, content, num_total)
            start += len(content)
        if num_total is not None and start < num_total:
            raise ConnectionError(f"the connection broke after {start:,} of {num_total:,} bytes")


def reason(error: BaseException) -> str:
    """The words of the error below, which is what the web's own errors wrap."""
    is_wrapped = isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException)
    return words_of(error.reason if is_wrapped else error)  # type: ignore[attr-defined]
