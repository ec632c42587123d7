"""Which bundle answers: the one that a link points at, swapped without a pause when the link moves."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from foster.bundle.files import MANIFEST, BundleError
from foster.bundle.promotion import LINK
from foster.serving.served import Served

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 10.0


def find_link(path: Path) -> Path | None:
    """The link to watch: `path` itself, or `current` inside it; None where `path` is a bundle."""
    inside = path / LINK
    if inside.is_symlink():
        return inside
    if path.is_symlink():
        return path
    if (path / MANIFEST).exists():
        return None
    if not path.exists():
        raise BundleError(f"there is no bundle '{path}'")
    raise BundleError(
        f"'{path}' is neither a bundle nor a folder with a link '{LINK}'; 'foster promote BUNDLE' makes one"
    )


class Current:
    """The bundle in use. `now` changes between two requests; whoever took it may go on using it.

    `load` makes what is served of a real folder; a bundle that cannot be loaded leaves the one in use.
    """

    def __init__(self, path: Path, load: Callable[[Path], Served]) -> None:
        self._load = load
        self._path = path
        self._link = find_link(path)
        self._folder = self._target()
        self.now = load(self._folder)
        self.num_swaps = 0
        self.problem: str | None = None
        """Why another bundle than the promoted one answers, without any path; None where all is well."""
        self._failed: Path | None = None
        self._retry_at = 0.0

    def _target(self) -> Path:
        """The real folder behind the link, found once: while it is read, the link may move again."""
        path = self._link or self._path
        try:
            return path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise BundleError(f"the link '{path}' leads nowhere") from None

    async def watch(self) -> None:
        """Follow the link without end."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "loading") as beside:
            while self._link is not None:
                await asyncio.sleep(LOOK_SECONDS)
                await loop.run_in_executor(beside, self.look)

    def look(self) -> None:
        """Let the bundle take over that the link points at, where it has moved; one that cannot be loaded is tried
        again after a while."""
        target: Path | None = None
        try:
            target = self._target()
            if target == self._folder:
                self.problem = self._failed = None
            elif target != self._failed or time.monotonic() >= self._retry_at:
                before, self.now = self.now.name, self._load(target)
                self._folder, self.problem, self._failed = target, None, None
                self.num_swaps += 1
                logger.info("now serving '%s' (version %s) after '%s'", self.now.name, self.now.version, before)
        except Exception as error:  # whatever it is, the bundle in use still answers
            is_new = self.problem is None or self._failed != target
            self._failed, self._retry_at = target, time.monotonic() + RETRY_SECONDS
            name = f"'{target.name}'" if target else "the link"
            self.problem = f"{name} was promoted but cannot be loaded; '{self.now.name}' still answers"
            if is_new:
                logger.error("%s: %s", self.problem, error)
