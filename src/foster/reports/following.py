"""The events of a run as it writes them, for whoever looks on from outside."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from foster.experiment.folder import EVENTS
from foster.system.files import open_plain


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
