"""The folder of one run: settings, events, results and checkpoints."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from foster.errors import DataError, FolderError, SettingsError, short
from foster.events import CheckpointWritten, Event
from foster.experiment.event_log import EVENTS, FollowedRun, end_cut_line, note
from foster.experiment.results import RESULTS, read_content
from foster.settings.base import FREE_SETTINGS, flat
from foster.settings.experiment import Settings, load_settings
from foster.system.files import explained_write_errors, is_temporary, remove_temporaries, write_json, write_text
from foster.system.locking import LOCK, locked, writer_of
from foster.training.checkpoint import CheckpointStore, NoCheckpoints

SETTINGS, CHECKPOINTS = "settings.toml", "checkpoints"


class RunFolder:
    """The folder to which a run writes everything.

    Of several processes of one run (torchrun), one writes; the others only read checkpoints: `is_written` is False.
    A temporary folder is removed when its run ends: it has no checkpoints (`can_resume` is False).
    """

    def __init__(self, path: Path, *, is_written: bool = True, can_resume: bool = True) -> None:
        self.path = path
        self.is_written, self.can_resume = is_written, can_resume
        has_checkpoints = is_written and can_resume
        self.checkpoints = (CheckpointStore if has_checkpoints else NoCheckpoints)(path / CHECKPOINTS)

    @property
    def holds_run(self) -> bool:
        return (self.path / SETTINGS).exists()

    @property
    def is_finished(self) -> bool:
        return self.read_results().get("finished") is True

    def read_results(self) -> dict[str, Any]:
        """The results of the tasks so far; empty before the first task is learned, and where they cannot be read."""
        try:
            return read_content(self.path / RESULTS)
        except DataError:
            return {}

    def settings(
        self, overrides: Sequence[str] = (), *, plugins: Sequence[str] | None = None, trusts_plugins: bool = False
    ) -> Settings:
        """The settings of the run that the folder holds, with `overrides`.

        `plugins` are imported, and with `trusts_plugins` those that the folder names.
        """
        if not self.holds_run:
            raise FolderError(f"'{self.path}' holds no run ({SETTINGS} is missing)")
        return load_settings(str(self.path / SETTINGS), overrides, plugins=plugins, trusts_plugins=trusts_plugins)

    def resume_command(self, settings: Settings | None = None) -> str:
        """The command that continues the run, for a user who has just run `settings` and so trusts their plug-ins."""
        trust = " --trust-plugins" if settings and settings.plugins else ""
        return f"foster resume {shlex.quote(str(self.path))}{trust}"

    def check_same(self, settings: Settings) -> None:
        """Refuse to continue the run in the folder with settings that change its result."""
        check_same_settings(self.settings(), settings, f"'{self.path}' holds a run")

    @property
    def has_learned(self) -> bool:
        """Whether a new start would lose something: there are results or checkpoints, or a checkpoint was written."""
        if (self.path / RESULTS).exists() or any(self.checkpoints.folder.glob("manifest-*.json")):
            return True
        return any(isinstance(event, CheckpointWritten) for event in FollowedRun(self.path).read_events())

    def check_nothing_learned(self) -> None:
        """Refuse a folder with results but no checkpoint: a new start would overwrite the results."""
        if self.has_learned:
            raise FolderError(
                f"the checkpoints of the run in '{self.path}' are missing in '{self.checkpoints.folder}'; "
                "put them back, or start a new run in another folder"
            )

    def check_free(self, settings: Settings | None = None) -> None:
        """A new run needs a folder that is empty, or holds a run that has learned nothing, and to which nobody writes.
        Of an unfinished run with other `settings` than these, the error says which differ."""
        if not self.is_written:
            return
        if self.path.is_dir() and (writer := writer_of(self.path)):
            raise FolderError(f"'{self.path}' is being written by {writer}; wait for it or stop it")
        if settings is not None and self.holds_run and self.has_learned and not self.is_finished:
            with suppress(SettingsError):  # its settings cannot be read here, because of a plug-in
                self.check_same(settings)
        self._check_empty()

    def _check_empty(self) -> None:
        other = "choose another folder with --out FOLDER (from Python: folder=...)"
        if self.is_finished:
            raise FolderError(f"'{self.path}' already holds a run, which is finished; {other}")
        begun = FolderError(
            f"'{self.path}' already holds a run; continue it with '{self.resume_command()}' "
            f"(from Python: resume=True), or {other}"
        )
        if self.holds_run and self.has_learned:
            raise begun
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"'{self.path}' is a file; {other}")
        with explained_write_errors(self.path):
            entries = list(self.path.iterdir()) if self.path.is_dir() else []
        # Settings without events may be a file of the user's own.
        is_begun = self.holds_run and (self.path / EVENTS).exists()
        own = {LOCK, SETTINGS, EVENTS, CHECKPOINTS} if is_begun else {LOCK}
        if not all(entry.name in own or is_temporary(entry) for entry in entries):
            raise begun if is_begun else FolderError(f"'{self.path}' is not empty; {other}")

    @contextmanager
    def opened(self, settings: Settings | None = None) -> Iterator["RunFolder"]:
        """Hold the folder for writing. With `settings` it becomes the folder of a new run."""
        if not self.is_written:
            yield self
            return
        with locked(self.path):
            if settings is not None:
                self._check_empty()  # again after `check_free`: another process may have come first
            remove_temporaries(self.path)
            if settings is not None:
                (self.path / EVENTS).unlink(missing_ok=True)
                write_text(self.path / SETTINGS, settings.toml())
            end_cut_line(self.path)
            yield self

    def keep_settings(self, settings: Settings) -> None:
        """Write the settings with which the run is continued."""
        if self.is_written and settings != self.settings():
            write_text(self.path / SETTINGS, settings.toml())

    def note(self, event: Event) -> None:
        if self.is_written:
            note(self.path, event)

    def write_results(self, results: dict[str, Any]) -> None:
        if self.is_written:
            write_json(self.path / RESULTS, results)


def differing_key(before: Mapping[str, Any], now: Mapping[str, Any], counted: Collection[str] = ()) -> str | None:
    """The dotted key of a setting in which two runs differ, `method` first.

    `FREE_SETTINGS` do not count, except those at or below the dotted keys in `counted`.
    """
    first, second = flat(before), flat(now)

    def is_free(key: str) -> bool:
        return key.split(".")[0] in FREE_SETTINGS and not any(f"{key}.".startswith(f"{some}.") for some in counted)

    differing = [key for key in first.keys() | second.keys() if first.get(key) != second.get(key) and not is_free(key)]
    return min(differing, key=lambda key: (key != "method", key), default=None)


def check_same_settings(before: Settings, now: Settings, owner: str) -> None:
    """Raise FolderError if settings differ that decide what a run learns. `owner` has those `before`."""
    first, second = before.nested(), now.nested()
    if key := differing_key(first, second):
        raise FolderError(
            f"{owner} with {key} = {short(flat(first).get(key))}, not {short(flat(second).get(key))}; only "
            f"{', '.join(FREE_SETTINGS)} can change when a run is continued: start a new run in another folder"
        )
