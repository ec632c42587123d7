"""The events of a run as it writes them, for whoever looks on from outside."""

import datetime as dt
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from foster.errors import FosterError
from foster.events import Downloading, Event, Listener
from foster.experiment.folder import EVENTS
from foster.learner.work_folder import WorkFolder
from foster.system.files import append_line, open_plain


class EventReader:
    """Reads what a run has written since the last time; a line that is not whole yet waits for the next."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._num_read = 0

    def new_events(self) -> list[dict[str, Any]]:
        """In order; what cannot be read, or is no event, is passed over."""
        try:
            with open(self._path, "rb", opener=open_plain) as file:
                file.seek(self._num_read)
                new = file.read()
        except OSError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._num_read += len(whole)
        events = []
        for line in whole.splitlines():
            with suppress(ValueError, RecursionError):
                events.append(json.loads(line))
        return [event for event in events if isinstance(event, dict)]


def noting(listener: Listener, work: WorkFolder) -> Listener:
    """The listener of a `learn`, whose events can be looked at meanwhile: they lie beside its checkpoints."""
    path = work.checkpoints.folder / EVENTS

    def tell(event: Event) -> None:
        if not isinstance(event, Downloading):
            with suppress(FosterError, OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                append_line(path, event.json(dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")))
        listener(event)

    return tell
