"""The folder of one run: settings, events, results and checkpoints."""

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foster.config import Settings, load_settings
from foster.errors import FolderError
from foster.events import Event
from foster.files import unwritable, write_json, write_text
from foster.locking import locked
from foster.training.checkpoint import CheckpointStore

SETTINGS, EVENTS, RESULTS, CHECKPOINTS = "settings.toml", "events.jsonl", "results.json", "checkpoints"


class RunFolder:
    """The one place to which a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointStore(path / CHECKPOINTS)

    @property
    def holds_run(self) -> bool:
        return (self.path / SETTINGS).exists()

    @property
    def is_finished(self) -> bool:
        try:
            return bool(json.loads((self.path / RESULTS).read_text(encoding="utf-8"))["finished"])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def read_results(self) -> dict[str, Any]:
        """What `results.json` holds."""
        try:
            results: dict[str, Any] = json.loads((self.path / RESULTS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FolderError(f"cannot read '{self.path / RESULTS}': {error}") from None
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
        if self.path.is_dir() and any(entry.name != "lock" for entry in self.path.iterdir()):
            raise FolderError(f"'{self.path}' is not empty; choose another folder with --out")

    @contextmanager
    def opened(self, settings: Settings | None = None) -> Iterator["RunFolder"]:
        """Hold the folder for writing. With `settings` it becomes the folder of a new run."""
        if settings is not None:
            self.check_free()
        with locked(self.path):
            if settings is not None:
                write_text(self.path / SETTINGS, settings.toml())
            self._mend_events()
            yield self

    def note(self, event: Event) -> None:
        """Add a line to the events. Each line is written at once: a crash can only cut the last one."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        path = self.path / EVENTS
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(event.json(now) + "\n")
        except OSError as error:
            raise unwritable(path, error) from None

    def write_results(self, results: dict[str, Any]) -> None:
        write_json(self.path / RESULTS, results)

    def _mend_events(self) -> None:
        """End a line that a crash has cut, so that the next event starts on a line of its own."""
        path = self.path / EVENTS
        if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            with open(path, "ab") as file:
                file.write(b"\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run; a line that a crash has cut is left out."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events
