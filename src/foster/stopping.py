"""Ctrl-C and SIGTERM ask a run to stop at the next step, after which everything is saved."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"


class Stopped(Exception):  # noqa: N818 (it is no error)
    """A run stopped because it was asked to; all is saved. `exit_code` is the conventional one of the signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number
        self._hint = ""

    def add_hint(self, hint: str) -> None:
        """Say what the user can do next."""
        self._hint = f"; {hint}"

    def __str__(self) -> str:
        return super().__str__() + self._hint


class StopRequest:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self._signal_number: int | None = None

    @property
    def is_set(self) -> bool:
        return self._signal_number is not None

    def set(self, signal_number: int = signal.SIGINT) -> None:
        self._signal_number = signal_number

    def raise_if_set(self) -> None:
        if self._signal_number is not None:
            raise Stopped(self._signal_number)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Inside, the first Ctrl-C, SIGTERM or SIGHUP sets the request, and a second one ends the process at once.

    Signals that the process was told to ignore, as `nohup` does, stay ignored. Only the main thread can receive
    signals: in any other, the request is never set.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    heard = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]

    def handle(signal_number: int, frame: FrameType | None) -> None:
        # From now on the operating system acts by itself, even while Python waits for a long computation.
        for number in heard:
            signal.signal(number, signal.SIG_DFL)
        request.set(signal_number)
        _say("stopping after this step; press Ctrl-C again to leave at once")

    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    """Write to standard error from a signal handler: unbuffered, since the interrupted code may be writing there.

    A process that is ended by a signal cannot show the terminal's cursor again, so that is done here.
    """
    with suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stderr.fileno()
        start = SHOW_CURSOR + "\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{start}{line}\n".encode())
