"""Commands that wait to be stopped once they have come so far, so that no test can stop them too late."""

import os
import sys
import threading
import time
from pathlib import Path

from foster.system.signals import StopRequest

SECONDS = 60.0
"""A command that nobody stops goes on after that, and its test fails."""


def held(file: Path, text: str, until: Path | None = None) -> dict[str, str]:
    """The environment in which a command waits for a stop after the first step at which the file says the text, or
    until the file `until` is there. A relative file lies in the run folder that the command makes or resumes."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here / "holding"), str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "HELD_FILE": str(file), "HELD_TEXT": text, "HELD_UNTIL": str(until or "")}


def hold(file: Path, text: str, until: Path | None = None) -> None:
    """Make training in this process wait like that."""

    def is_over() -> bool:
        return until is not None and until.exists()

    def is_set_after_waiting(request: StopRequest) -> bool:
        # Training asks this after every step. The thread that sets the request asks it too, and must not wait.
        latest = time.monotonic() + SECONDS
        before_folder = "--out" if "--out" in sys.argv else "resume"
        path = file if file.is_absolute() else Path(sys.argv[sys.argv.index(before_folder) + 1]) / file
        if threading.current_thread() is threading.main_thread() and path.exists() and text in path.read_text():
            while not request.signal_number and not is_over() and time.monotonic() < latest:
                time.sleep(0.01)
        return request.signal_number != 0

    StopRequest.is_set = property(is_set_after_waiting)  # type: ignore[assignment, method-assign]
