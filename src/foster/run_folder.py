"""The folder of one run: settings, events, results and checkpoints."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foster.config import Settings, load_settings
from foster.errors import FolderError
from foster.events import Event
from foster.files import append_line, is_temporary, remove_temporaries, unwritable, write_json, write_text
from foster.locking import LOCK, locked
from foster.setting_keys import flat
from foster.training.checkpoint import CheckpointStore

SETTINGS, EVENTS, RESULTS, CHECKPOINTS = "settings.toml", "events.jsonl", "results.json", "checkpoints"

FREE_SETTINGS = ("data", "device", "checkpoint_minutes", "engine")
"""What may be changed in the middle of a run: where and how it runs, not what it does."""


class RunFolder:
    """The one place to which a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointStore(path / CHECKPOINTS)

    @property
    def holds_run(self) -> bool:
        try:
            return (self.path / SETTINGS).exists()
        except OSError as error:
            raise FolderError(f"cannot read '{self.path}': {error.strerror}") from None

    @property
    def is_finished(self) -> bool:
        try:
            return self.read_results().get("finished") is True
        except FolderError:
            return False

    def read_results(self) -> dict[str, Any]:
        """What `results.json` holds."""
        path = self.path / RESULTS
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise FolderError(f"cannot read '{path}': {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise FolderError(f"'{path}' is damaged: {error}") from None
        if not isinstance(results, dict):
            raise FolderError(f"'{path}' is damaged: it does not hold the results of a run")
        return results

    def settings(self) -> Settings:
        """The settings of the run that the folder holds."""
        if not self.holds_run:
            raise FolderError(f"'{self.path}' holds no run ({SETTINGS} is missing)")
        return load_settings(str(self.path / SETTINGS))

    def check_free(self) -> None:
        """A new run needs a folder that does not hold anything yet."""
        if self.holds_run:
            raise FolderError(
                f"'{self.path}' already holds a run; continue it with 'foster resume {self.path}', "
                "or choose another folder with --out"
            )
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"'{self.path}' is a file; choose another folder with --out")
        try:
            entries = list(self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            raise unwritable(self.path, error) from None
        if not all(entry.name == LOCK or is_temporary(entry) for entry in entries):
            raise FolderError(f"'{self.path}' is not empty; choose another folder with --out")

    @contextmanager
    def opened(self, settings: Settings | None = None) -> Iterator["RunFolder"]:
        """Hold the folder for writing. With `settings` it becomes the folder of a new run."""
        if settings is not None:
            self.check_free()
        with locked(self.path):
            remove_temporaries(self.path)
            if settings is not None:
                # Once more: another process may have come first.
                self.check_free()
                write_text(self.path / SETTINGS, settings.toml())
            self._mend_events()
            yield self

    def note(self, event: Event) -> None:
        """Add a line to the events. Each line is written at once: a crash can only cut the last one."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        append_line(self.path / EVENTS, event.json(now))

    def write_results(self, results: dict[str, Any]) -> None:
        write_json(self.path / RESULTS, results)

    def _mend_events(self) -> None:
        """End a line that a crash has cut, so that the next event starts on a line of its own."""
        path = self.path / EVENTS
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 1))
                is_cut = file.read() not in (b"", b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FolderError(f"cannot read '{path}': {error.strerror}") from None
        if is_cut:
            append_line(path, "")


def check_same_settings(saved: Mapping[str, Any], settings: Settings) -> None:
    """Refuse to continue a checkpoint under settings that would have led elsewhere."""
    before, now = flat(saved), flat(settings.nested())
    for key in sorted(before.keys() | now.keys()):
        if key.split(".")[0] not in FREE_SETTINGS and before.get(key) != now.get(key):
            raise FolderError(
                f"the checkpoint was made with {key} = {before.get(key)!r}, but {SETTINGS} now says {now.get(key)!r}; "
                "put it back, or start a new run in another folder"
            )


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run in order; a line that a crash has cut is left out.

    What was done after the last checkpoint before a crash is done again: such epochs stand in the list twice, and
    the later ones count.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {error.strerror}") from None
    events = []
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
