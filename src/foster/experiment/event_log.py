"""`events.jsonl`: a line for each event of a run or a `learn`, written at once, and read by whoever looks on."""

import datetime as dt
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from foster.errors import FolderError, FosterError, explained, words_of
from foster.events import Downloading, Event, Listener
from foster.system.files import append_line, read_limited

EVENTS = "events.jsonl"
MAX_EVENTS_BYTES = 2**28
NUMBERS = ("task", "num_tasks", "epoch", "epochs", "steps", "seconds", "seconds_left", "accuracy", "final_accuracy")
"""What is a number, or nothing, in each event that has it."""


def note(folder: Path, event: Event) -> None:
    """Add a line to a folder's events. Each line is written at once: a crash can only cut the last one."""
    append_line(folder / EVENTS, event.json(dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")))


def noting(listener: Listener, folder: Path) -> Listener:
    """The listener of a `learn`, whose events can be looked at meanwhile in `folder`; what cannot be noted is lost."""

    def tell(event: Event) -> None:
        if not isinstance(event, Downloading):
            with suppress(FosterError, OSError):
                folder.mkdir(parents=True, exist_ok=True)
                note(folder, event)
        listener(event)

    return tell


def end_cut_line(folder: Path) -> None:
    """End a line that a crash has cut, so that the next event starts on a line of its own."""
    path = folder / EVENTS
    try:
        last = read_limited(path, MAX_EVENTS_BYTES, start=max(0, path.stat().st_size - 1))
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {words_of(error)}") from None
    if last not in (b"", b"\n"):
        append_line(path, "")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run in order; a line that a crash has cut is left out.

    What was done after the last checkpoint before a crash is done again: such epochs stand in the list twice, and
    the later ones count.
    """
    with explained(FolderError, f"cannot read '{path}'"):
        return _events_in(read_limited(path, MAX_EVENTS_BYTES))


class EventReader:
    """Reads what a run has written since the last time; a line that is not whole yet waits for the next."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._num_read = 0

    def new_events(self) -> list[dict[str, Any]]:
        """In order; a line that is not an event is left out. FolderError where the file cannot be read."""
        try:
            new = read_limited(self._path, MAX_EVENTS_BYTES, start=self._num_read)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FolderError(f"cannot read '{self._path}': {words_of(error)}") from None
        whole = new[: new.rfind(b"\n") + 1]
        self._num_read += len(whole)
        return _events_in(whole)


def _events_in(lines: bytes) -> list[dict[str, Any]]:
    events = []
    for line in lines.split(b"\n"):
        with suppress(ValueError, RecursionError):
            events.append(json.loads(line.decode(errors="replace")))
    return [event for event in events if _is_event(event)]


def _is_event(line: object) -> bool:
    """Whether numbers are numbers: any process may have written to the file."""
    if not isinstance(line, dict):
        return False
    losses = line.get("losses", {})
    if not isinstance(losses, dict):
        return False
    numbers = [line[key] for key in NUMBERS if line.get(key) is not None]
    return all(map(_is_number, [*losses.values(), *numbers]))


def _is_number(value: object) -> bool:
    """An integer beyond 64 bits cannot become a float, and is no loss or count of ours."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
