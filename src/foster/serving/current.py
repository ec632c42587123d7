"""Which bundle answers: the one that a link points at, swapped without a pause when the link moves."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from foster.bundle.files import MANIFEST, BundleError
from foster.bundle.promotion import LINK
from foster.serving.served import Served

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0


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

    def _target(self) -> Path:
        """The real folder behind the link, found once: while it is read, the link may move again."""
        path = self._link or self._path
        try:
            return path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise BundleError(f"the link '{path}' leads nowhere") from None

    async def watch(self) -> None:
        """Follow the link without end."""
        if self._link is None:
            return
        failed: Path | None = None
        retry_at, wait = 0.0, FIRST_RETRY_SECONDS
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "loading") as beside:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                target: Path | None = None
                try:
                    target = await loop.run_in_executor(beside, self._target)
                    if target == self._folder:
                        self.problem, failed = None, None
                        continue
                    if target == failed and loop.time() < retry_at:
                        continue
                    loaded = await loop.run_in_executor(beside, self._load, target)
                except Exception as error:  # whatever it is, the bundle in use still answers
                    is_new = failed != target or self.problem is None
                    wait = FIRST_RETRY_SECONDS if is_new else min(2 * wait, LAST_RETRY_SECONDS)
                    failed, retry_at = target, loop.time() + wait
                    name = f"'{target.name}'" if target else "the link"
                    self.problem = f"{name} was promoted but cannot be loaded; '{self.now.name}' still answers"
                    if is_new:
                        logger.error("%s: %s", self.problem, error)
                    continue
                before = self.now.name
                self.now, self._folder, self.problem, failed = loaded, target, None, None
                self.num_swaps += 1
                logger.info("now serving '%s' (version %s) after '%s'", loaded.name, loaded.version, before)
