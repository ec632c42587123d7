"""The folder of an unfinished `learn`: its checkpoints, its features, and the fingerprint of its start."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from foster import events
from foster.errors import FolderError
from foster.experiment.event_log import EVENTS
from foster.learner.reports import UpdateError
from foster.settings.base import flat
from foster.system.files import user_path, write_bytes
from foster.system.locking import LOCK, locked
from foster.training.checkpoint import CheckpointStore, explained_misfit
from foster.training.task import TaskState

CHECKPOINTS = "checkpoints"
OWN_FILES = {LOCK, CHECKPOINTS}


class WorkFolder:
    """The folder of an unfinished `learn`. It has weights, features and hashes, but no images."""

    def __init__(self, path: Path) -> None:
        self.path = user_path(path)
        self.checkpoints = CheckpointStore(self.path / CHECKPOINTS)

    @classmethod
    def beside(cls, bundle: Path) -> "WorkFolder":
        """The hidden folder that the command uses for a bundle that is not written yet."""
        return cls(bundle.parent / f".{bundle.name}.learning")

    @contextmanager
    def opened(self) -> Iterator["WorkFolder"]:
        """Lock the folder for one `learn` and for saving its bundle: a second process is refused.

        The folder is removed when the work inside is done, when an update was refused, and when nothing was saved that
        another attempt could use.
        """
        with self.held():
            is_to_continue = False
            try:
                yield self
            except BaseException as error:
                has_saved = any(path.name != EVENTS for path in self.checkpoints.folder.glob("*"))
                is_to_continue = has_saved and not isinstance(error, UpdateError)
                raise
            finally:
                if not is_to_continue:
                    shutil.rmtree(self.checkpoints.folder, ignore_errors=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, so that no other process writes its bundle. The content of the folder is not changed."""
        others = {entry.name for entry in self.path.iterdir()} - OWN_FILES if self.path.is_dir() else set()
        if others:  # such as the checkpoints of a run
            raise FolderError(f"'{self.path}' has '{min(others)}', which is not from a learn; choose another folder")
        try:
            with locked(self.path):
                yield
        finally:
            # Only empty folders are removed: another process may have locked the folder by now.
            for path in (self.checkpoints.folder, self.path):
                with suppress(OSError):
                    path.rmdir()

    def progress(self, start: Mapping[str, Any], listener: events.Listener) -> TaskState | None:
        """The saved progress of the `learn` with the fingerprint `start`. Raises FolderError if the folder has
        another one."""
        try:
            checkpoint = self.checkpoints.load(lambda message: listener(events.Warned(message)))
            if checkpoint is None:
                return None
            with explained_misfit():
                reason = difference(checkpoint.state["learning"], start)
                progress = TaskState.of(checkpoint)
        except FolderError as error:
            raise FolderError(f"{error}, or delete '{self.path}' to start anew") from None
        if reason:
            raise FolderError(
                f"'{self.path}' has an interrupted learn {reason}; "
                "repeat that learn to continue it, or delete the folder to start anew"
            )
        return progress

    def saved_features(self, key: str) -> Tensor | None:
        """The features with this key that an interrupted `learn` has computed; None if there are none."""
        with suppress(OSError, SafetensorError):
            return load_file(self._features_file(key))["features"]
        return None

    def save_features(self, key: str, features: Tensor) -> None:
        write_bytes(self._features_file(key), save({"features": features}))

    def _features_file(self, key: str) -> Path:
        return self.checkpoints.folder / f"features-{key}.safetensors"


def opened(folder: str | Path | WorkFolder | None) -> AbstractContextManager[WorkFolder | None]:
    """Open a folder for one `learn`; a WorkFolder that is already open stays open afterwards."""
    if folder is None or isinstance(folder, WorkFolder):
        return nullcontext(folder)
    return WorkFolder(Path(folder)).opened()


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first difference of two fingerprints as text; None if they are equal."""
    old, new = flat(before["settings"]), flat(now["settings"])
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            was = f"no {key}" if old.get(key) is None else f"{key} = {old[key]!r}"
            return f"with {was}, which is {'not set' if new.get(key) is None else repr(new[key])} now"
    words = {"known": "from another bundle", "images": "of other images"}
    return next((text for key, text in words.items() if before[key] != now[key]), None)
