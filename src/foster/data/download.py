"""Published files: downloaded with pooch, checked by their MD5 sums, and unpacked."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from foster import events
from foster.errors import DataError, explained, words_of
from foster.settings.datasets import Published
from foster.system.locking import locked
from foster.system.signals import StopRequest

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Follower:
    """The observer of a long operation such as a download: it gets progress events and can request a stop."""

    listener: events.Listener = events.ignore
    stop: StopRequest = field(default_factory=StopRequest)

    def warn(self, message: str) -> None:
        self.listener(events.Warned(message))


def find_or_fetch(published: Published, data_dir: Path, follower: Follower | None = None) -> Path:
    """The folder with all published files. Missing files are unpacked from the archive, which is downloaded if needed.

    `data_dir` is that folder or its parent. If several processes need the files, one downloads them and the others
    wait. A signal ends the download at once.
    """
    follower = follower or Follower()
    parent = data_dir.parent if data_dir.name == published.folder else data_dir
    if complete := complete_folder(published, data_dir):
        return complete
    folder = parent / published.folder
    with follower.stop.at_once(), locked(parent, f".{published.folder}.lock", is_waiting=True):
        # Checked again: another process may have finished meanwhile.
        if not complete_folder(published, data_dir):
            archives = [place / published.archive for place in (data_dir, parent)]
            archive = next((path for path in archives if path.is_file()), None)
            _unpack(published, archive or _downloaded(published, parent, follower.listener), folder)
    return folder


@dataclass
class _Progress:
    """A progress bar for pooch that reports the received bytes as events."""

    name: str
    tell: events.Listener
    total: int = 0
    num_received: int = 0

    def update(self, num_bytes: int) -> None:
        self.num_received = min(self.num_received + num_bytes, self.total or self.num_received + num_bytes)
        self.tell(events.Downloading(self.name, self.num_received, self.total or None))

    def reset(self) -> None:
        self.num_received = 0

    def close(self) -> None:
        """Required by pooch."""


def _downloaded(published: Published, parent: Path, tell: events.Listener) -> Path:
    """Download the archive into `parent`. The file appears only when it is complete and its MD5 sum is correct."""
    import pooch
    import requests

    name = published.archive
    tell(events.Downloading(name, 0, None))
    pooch.get_logger().setLevel("WARNING")
    download = pooch.HTTPDownloader(progressbar=_Progress(name, tell), chunk_size=CHUNK_BYTES, timeout=TIMEOUT_SECONDS)
    try:
        return Path(
            pooch.retrieve(published.address, f"md5:{published.archive_md5}", name, parent, downloader=download)
        )
    except (requests.RequestException, OSError, ValueError) as error:
        files = ", ".join(published.files)
        raise DataError(
            f"cannot download {published.address} ({_reason(error)}); "
            f"put {name} into {parent}, or the files {files} into {parent / published.folder}"
        ) from error


def _reason(error: Exception) -> str:
    """The reason of a failed download, shorter than the messages of requests."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    is_silent = isinstance(error, requests.ConnectionError | requests.Timeout)
    return "no connection to the server" if is_silent else words_of(error)


def _unpack(published: Published, archive: Path, folder: Path) -> None:
    """Unpack the archive. A new `folder` appears only when it is complete; files of an old one are replaced."""
    check_md5(archive, published.archive_md5)
    unwritable = explained(DataError, f"cannot unpack {archive} into {folder}")
    with unwritable, tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        shutil.unpack_archive(archive, temporary)
        unpacked = Path(temporary) / published.folder
        if folder.exists():
            shutil.copytree(unpacked, folder, dirs_exist_ok=True)
        else:
            unpacked.rename(folder)


def check_md5(path: Path, expected: str) -> None:
    """Raise DataError unless the file is, byte for byte, the published one."""
    import pooch

    with explained(DataError, f"cannot read {path}"):
        actual = pooch.file_hash(str(path), "md5")
    if actual != expected:
        raise DataError(
            f"{path} is damaged or not the published file: MD5 is {actual}, not {expected}; "
            "remove it, and it is downloaded again"
        )


def complete_folder(published: Published, data_dir: Path) -> Path | None:
    """The published folder in `data_dir`, or `data_dir` itself, if it has all published files; else None."""
    folders = (data_dir / published.folder, data_dir)
    with explained(DataError, f"cannot read {data_dir}"):
        return next((folder for folder in folders if all((folder / name).is_file() for name in published.files)), None)
