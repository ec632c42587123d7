"""The link `current` beside the bundles: which one is in use, and which ones were."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foster.bundle.files import BundleError
from foster.bundle.manifest import read_manifest
from foster.errors import FolderError
from foster.system.files import flush, read_plain, unwritable, write_json
from foster.system.locking import locked

LINK, HISTORY, LOCK = "current", "current.json", ".current.lock"
MAX_HISTORY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Promotion:
    """A move of the link: from which bundle (None for the first) to which, by their names."""

    link: Path
    before: str | None
    after: str


def promote(bundle: Path) -> Promotion:
    """Point the link `current` in the bundle's parent folder at it, in one step that cannot be seen half done."""
    target = _bundle_folder(bundle)
    read_manifest(target)
    # A link may stand elsewhere, and the parent of '.' or '..' is not what stands before its last slash.
    is_plain = not bundle.is_symlink() and bundle.name not in ("", "..")
    link = (bundle if is_plain else target).parent / LINK
    with locked(link.parent, LOCK):
        before = _target(link)
        if before == target.name:
            return Promotion(link, before, target.name)
        history = _history(link)
        if before is not None and (not history or history[-1] != before):
            history.append(before)  # a link that somebody set by hand
        _move(link, target.name)
        _write_history(link, [*history, target.name])
        return Promotion(link, before, target.name)


def check_promotable(bundle: Path) -> None:
    """Whether a bundle that is yet to be written could be promoted; what stands against it is an error."""
    _check_name(bundle.absolute())
    link = bundle.parent / LINK
    if _target(link) != bundle.name:
        _history(link)


def rollback(place: Path) -> Promotion:
    """Point the link back at the bundle before the one in use. `place` is the link or the folder that holds it."""
    link = place if place.is_symlink() else place / LINK
    if _target(link) is None:
        raise FolderError(f"there is no link '{link}'; 'foster promote BUNDLE' makes one")
    with locked(link.parent, LOCK):
        return _rolled_back(link)


def _rolled_back(link: Path) -> Promotion:
    before, history = link.readlink().name, _history(link)
    if history and history[-1] == before:
        history.pop()
    if not history:
        raise FolderError(f"'{link}' points at '{before}', and nothing was promoted before it")
    after = history[-1]
    try:
        read_manifest(link.parent / after)
    except BundleError as error:
        raise FolderError(f"cannot roll back from '{before}' to '{after}': {error}") from None
    _move(link, after)
    _write_history(link, history)
    return Promotion(link, before, after)


def _bundle_folder(bundle: Path) -> Path:
    """The real folder of a bundle, also where it is named by a link."""
    try:
        target = bundle.resolve(strict=True)
    except OSError:
        raise BundleError(f"there is no bundle '{bundle}'") from None
    _check_name(target)
    return target


def _check_name(bundle: Path) -> None:
    if bundle.name == LINK:
        raise FolderError(f"a bundle named '{LINK}' cannot be promoted: that is the name of the link")


def _target(link: Path) -> str | None:
    """The name of the bundle that the link points at; None where there is no link."""
    if not link.is_symlink():
        if link.exists():
            raise FolderError(f"'{link}' is not a link, so it is left alone; rename it to use promote and rollback")
        return None
    return link.readlink().name


def _move(link: Path, name: str) -> None:
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{LINK}.", dir=link.parent))
        try:
            (temporary / LINK).symlink_to(name, target_is_directory=True)
            (temporary / LINK).replace(link)
        finally:
            temporary.rmdir()
        flush(link.parent)
    except OSError as error:
        raise unwritable(link, error) from None


def _history(link: Path) -> list[str]:
    """The names of the bundles that were promoted and not rolled back, the one in use last."""
    try:
        data: Any = json.loads(read_plain(link.parent / HISTORY, max_bytes=MAX_HISTORY_BYTES).decode())
        names = [entry["bundle"] for entry in data["promoted"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise FolderError(f"'{link.parent / HISTORY}' is damaged; remove it to start a new history") from None
    if not all(isinstance(name, str) and name == Path(name).name for name in names):
        raise FolderError(f"'{link.parent / HISTORY}' is damaged; remove it to start a new history")
    return names


def _write_history(link: Path, names: Sequence[str]) -> None:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(link.parent / HISTORY, {"changed": when, "promoted": [{"bundle": name} for name in names]})
