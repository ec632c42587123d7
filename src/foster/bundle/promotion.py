"""The link `current` beside the bundles, which points at the bundle in use, and the history of promotions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from foster.bundle.files import MANIFEST, BundleError, real_folder
from foster.bundle.manifest import checked_files, read_manifest
from foster.errors import FolderError
from foster.system.documents import Document, DocumentError, checked, read_json
from foster.system.files import flush, remove_temporaries, write_json, written
from foster.system.locking import locked

LINK, HISTORY, LOCK = "current", "current.json", ".current.lock"
MAX_NAME = 255
"""The longest name of a folder."""


def _plain_name(name: str) -> str:
    if name in (".", "..") or name != Path(name).name or "\0" in name or len(name) > MAX_NAME:
        raise ValueError(f"{name[:80]!r} is no name of a bundle")
    return name


class _Promoted(Document):
    bundle: Annotated[str, AfterValidator(_plain_name)]


class _History(Document):
    """What `current.json` holds."""

    promoted: tuple[_Promoted, ...]


@dataclass(frozen=True)
class Promotion:
    """A move of the link: from which bundle (None for the first) to which, by their names."""

    link: Path
    before: str | None
    after: str


def check_files(bundle: Path) -> None:
    """Check the hashes of all files of a bundle. Raises BundleError."""
    folder = real_folder(bundle)
    for _ in checked_files(folder, read_manifest(folder)):
        pass


def promote(bundle: Path, check: Callable[[Path], object] = check_files) -> Promotion:
    """Point the link `current` in the bundle's parent folder at it, atomically.

    `check` gets the real folder first and raises BundleError if the bundle must not be used.
    """
    target = real_folder(bundle).resolve()
    _check_name(target)
    check(target)
    # A link to the bundle may be in another folder; and '.' and '..' do not end in the bundle's name.
    is_plain = not bundle.is_symlink() and bundle.name not in ("", "..")
    link = (bundle if is_plain else target).parent / LINK
    with locked(link.parent, LOCK):
        before = _target(link)
        if before != target.name:
            _move(link, [*_before(link, target.name), *([before] if before else []), target.name])
        return Promotion(link, before, target.name)


def check_promotable(bundle: Path) -> None:
    """Raise FolderError if a bundle at this place could not be promoted; for a check before it is written."""
    _check_name(bundle.absolute())
    link = bundle.parent / LINK
    if _target(link) != bundle.name:
        _history(link)


def rollback(path: Path) -> Promotion:
    """Point the link back at the bundle before the one in use. `path` is the link or the folder that holds it."""
    link = path if path.is_symlink() else path / LINK
    if _target(link) is None:
        raise FolderError(f"there is no link '{link}'; 'foster promote BUNDLE' makes one")
    with locked(link.parent, LOCK):
        now, history = link.readlink().name, _before(link)
        if not history:
            bundles = {path.parent.name for path in link.parent.glob(f"*/{MANIFEST}")}
            others = sorted(bundles - {now, LINK}, key=str.casefold)
            hint = f"; 'foster promote' takes any other: {', '.join(others)}" if others else ""
            raise FolderError(f"'{link}' points at '{now}', and nothing was promoted before it{hint}")
        try:
            check_files(link.parent.resolve() / history[-1])
        except BundleError as error:
            raise FolderError(f"cannot roll back from '{now}' to '{history[-1]}': {error}") from None
        _move(link, history)
        return Promotion(link, now, history[-1])


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


def _move(link: Path, history: Sequence[str]) -> None:
    """Write the history, which ends with the bundle to be used, and then point the link at that.

    After a crash between the two, the link has not moved; the same command then completes the promotion.
    """
    when = datetime.now(UTC).isoformat(timespec="seconds")
    remove_temporaries(link.parent, HISTORY)
    write_json(link.parent / HISTORY, {"changed": when, "promoted": [{"bundle": name} for name in history]})
    temporary = link.parent / f".{LINK}.part"
    with written(link):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(history[-1], target_is_directory=True)
        temporary.replace(link)
        flush(link.parent)


def _before(link: Path, coming: str | None = None) -> list[str]:
    """The bundles that were promoted before the one in use and not rolled back, each once, the newest last.

    Entries after the one in use come from a promotion that was cut off. `coming` is left out: it will be the newest.
    """
    history, now = _history(link), _target(link)
    if now in history:
        history = history[: history.index(now)]
    return [name for name in history if name != coming]


def _history(link: Path) -> list[str]:
    """The names in the history, each once, where it came last."""
    path = link.parent / HISTORY
    try:
        names = [entry.bundle for entry in checked(read_json(path), _History, path).promoted]
    except FileNotFoundError:
        return []
    except DocumentError as error:
        raise FolderError(f"{error}; remove it to start a new history") from None
    return list(dict.fromkeys(reversed(names)))[::-1]
