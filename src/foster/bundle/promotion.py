"""The link `current` beside the bundles points at the bundle in use, and `previous` at the one for `rollback`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foster.bundle.folder import BundleError, check_files, real_folder
from foster.errors import FolderError
from foster.system.files import explained_write_errors, flush
from foster.system.locking import locked

LINK, PREVIOUS, LOCK = "current", "previous", ".current.lock"


@dataclass(frozen=True)
class Promotion:
    """A move of the link: from which bundle (None for the first) to which, by their names."""

    link: Path
    before: str | None
    after: str


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
            if before is not None:  # first: after a crash between the two, the same command completes the promotion
                _point(link.with_name(PREVIOUS), before)
            _point(link, target.name)
        return Promotion(link, before, target.name)


def check_promotable(bundle: Path) -> None:
    """Raise FolderError if a bundle at this place could not be promoted. It need not be written yet."""
    _check_name(bundle.absolute())
    for name in (LINK, PREVIOUS):
        _target(bundle.parent / name)


def rollback(path: Path) -> Promotion:
    """Point the link back at the bundle before the one in use. `path` is the link or its folder.

    Only one step back is possible; `foster promote` takes any older bundle.
    """
    link = path if path.is_symlink() else path / LINK
    if _target(link) is None:
        raise FolderError(f"there is no link '{link}'; 'foster promote BUNDLE' makes one")
    with locked(link.parent, LOCK):
        now, before = link.readlink().name, _target(link.with_name(PREVIOUS))
        if before is None or before == now:
            raise FolderError(
                f"no bundle is known before '{now}', which is in use; 'foster promote' accepts any bundle"
            )
        try:
            check_files(link.parent.resolve() / before)
        except BundleError as error:
            raise FolderError(f"cannot roll back from '{now}' to '{before}': {error}") from None
        _point(link, before)
        with explained_write_errors(link):
            link.with_name(PREVIOUS).unlink()
        return Promotion(link, now, before)


def _check_name(bundle: Path) -> None:
    if bundle.name in (LINK, PREVIOUS):
        raise FolderError(f"a bundle named '{bundle.name}' cannot be promoted: that is the name of a link")


def _target(link: Path) -> str | None:
    """The name of the bundle that the link points at; None if there is no link."""
    if not link.is_symlink():
        if link.exists():
            raise FolderError(f"'{link}' is not a link, so it is left alone; rename it to use promote and rollback")
        return None
    return link.readlink().name


def _point(link: Path, name: str) -> None:
    """Point a link at the bundle `name` beside it, in one step."""
    temporary = link.with_name(f".{link.name}.part")
    with explained_write_errors(link):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name, target_is_directory=True)
        temporary.replace(link)
        flush(link.parent)
