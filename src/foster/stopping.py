"""Ctrl-C and SIGTERM ask a run to stop at the next step, after which everything is saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
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
    """Inside, the first Ctrl-C or SIGTERM sets the request, and a second one ends the process at once."""
    request = StopRequest()

    def handle(signal_number: int, frame: FrameType | None) -> None:
        if request.is_set:
            signal.signal(signal_number, signal.SIG_DFL)
            signal.raise_signal(signal_number)
        request.set(signal_number)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
