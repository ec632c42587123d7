"""Commands that wait to be stopped once they have come so far, so that no test can stop them too late."""

import os
import threading
import time
from pathlib import Path

from foster.system.signals import StopRequest

SECONDS = 60.0
"""A command that nobody stops goes on after that, and its test fails."""


def held(file: Path, text: str) -> dict[str, str]:
    """The environment in which a command waits for a stop after the first step at which the file says the text."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here / "holding"), str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "HELD_FILE": str(file), "HELD_TEXT": text}


def hold(file: Path, text: str) -> None:
    """Make training in this process wait like that."""

    def is_set_after_waiting(request: StopRequest) -> bool:
        # Training asks this after every step. The thread that sets the request asks it too, and must not wait.
        until = time.monotonic() + SECONDS
        if threading.current_thread() is threading.main_thread() and file.exists() and text in file.read_text():
            while request._signal_number is None and time.monotonic() < until:
                time.sleep(0.01)
        return request._signal_number is not None

    StopRequest.is_set = property(is_set_after_waiting)  # type: ignore[assignment, method-assign]
