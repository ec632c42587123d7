"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop after the current step; then everything is saved."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"

STOPS_WITH_INPUT = "FOSTER_STOPS_WITH_INPUT"
"""Set by a sweep in the environment of a run, which then reads requests to stop from its standard input, a pipe."""


class Stopped(Exception):  # noqa: N818 (it is no error)
    """A run stopped as requested, and everything is saved. `exit_code` is the usual one for the signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number

    def add_hint(self, hint: str) -> None:
        """Add what the user can do next to the message."""
        self.args = (f"{self}; {hint}",)


class StopRequest:
    """A request to stop, if there was one. Only the first request counts."""

    def __init__(self) -> None:
        self.signal_number = 0
        """The signal of the request; 0 without a request."""
        self.ends_at_once = False

    @property
    def is_set(self) -> bool:
        return self.signal_number != 0

    def set(self, signal_number: int = signal.SIGINT) -> None:
        self.signal_number = self.signal_number or signal_number

    def raise_if_set(self) -> None:
        if self.is_set:
            raise Stopped(self.signal_number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises `Stopped` immediately: for waits during which there is nothing to save."""
        self.ends_at_once = True
        try:
            self.raise_if_set()
            yield
        finally:
            self.ends_at_once = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Inside, the first Ctrl-C, SIGTERM or SIGHUP sets the request, and a second one ends the process at once.

    Signals that the process ignores, as under `nohup`, stay ignored. Only the main thread can receive signals: in any
    other, only a sweep that started this process can set the request.
    """
    request = StopRequest()
    if os.environ.pop(STOPS_WITH_INPUT, None):
        threading.Thread(target=_listen_to_sweep, args=(request,), daemon=True).start()

    def handle(number: int) -> None:
        # From now on the operating system itself acts on signals, even while Python waits for a long computation.
        for each in SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:
                signal.signal(each, signal.SIG_DFL)
        request.set(number)
        if request.ends_at_once:
            raise Stopped(number)
        _say("stopping after this step; press Ctrl-C again to leave at once")

    with _handling(handle):
        yield request


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the process as Ctrl-C does: half-written files are removed, and the exit code is
    the usual one for the signal. For work that cannot be continued later.

    During an import, a signal ends the process at once: torch's compiled modules lose the exception, or raise another.
    """

    def end(number: int) -> None:
        is_importing = any("<frozen importlib" in frame.f_code.co_filename for frame, _ in traceback.walk_stack(None))
        if number == signal.SIGINT and not is_importing:
            raise KeyboardInterrupt
        _say(f"foster: stopped by {signal.Signals(number).name}")
        if is_importing:
            os._exit(128 + number)
        raise SystemExit(128 + number)

    with _handling(end):
        yield


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """Inside, signals are only added to the list, as numbers; signals that were ignored stay ignored."""
    received: list[int] = []
    with _handling(received.append):
        yield received


@contextmanager
def _handling(handle: Callable[[int], None]) -> Iterator[None]:
    """Inside, `handle` gets every signal of SIGNALS that is not ignored; only the main thread can receive signals."""
    is_main = threading.current_thread() is threading.main_thread()
    wanted = [number for number in SIGNALS if is_main and signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, lambda received, _: handle(received)) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen_to_sweep(request: StopRequest) -> None:
    """Set the request when the sweep writes the number of a signal, or when the sweep has ended.

    A pipe replaces the signal because the system closes it when the sweep is killed.
    """
    text = os.read(0, 16).strip()
    number = int(text) if text.isdigit() else 0
    if not request.is_set:
        _say("stopping after this step: the sweep stops" if number in SIGNALS else "the sweep has ended: stopping")
    request.set(number if number in SIGNALS else signal.SIGTERM)


def _say(line: str) -> None:
    """Write to standard error from a signal handler, unbuffered: the interrupted code may be writing there.

    A process that a second signal ends cannot show the terminal's cursor again, so that is done here.
    """
    with suppress(OSError, ValueError):
        descriptor = sys.stderr.fileno()
        start = SHOW_CURSOR + "\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{start}{line}\n".encode())
