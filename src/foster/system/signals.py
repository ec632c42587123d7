"""Ctrl-C and SIGTERM ask a run to stop at the next step, after which everything is saved."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"

ECHO_SECONDS = 2.0
"""Supervisors send one SIGTERM or SIGHUP more than once: to a process and to its group, or to all that they started.
So long after the first, another one is taken for its echo. A Ctrl-C never is: a person pressed it."""

STOPS_WITH_INPUT = "FOSTER_STOPS_WITH_INPUT"
"""The environment variable by which a sweep tells a run to listen to its standard input, a pipe."""


class Stopped(Exception):  # noqa: N818 (it is no error)
    """A run stopped because it was asked to; all is saved. `exit_code` is the conventional one of the signal."""

    def __init__(self, signal_number: int, receiver: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}{receiver and f' to {receiver}'}")
        self.exit_code = 128 + signal_number
        self._hint = ""

    def add_hint(self, hint: str) -> None:
        """Say what the user can do next."""
        self._hint = f"; {hint}"

    def __str__(self) -> str:
        return super().__str__() + self._hint


class StopRequest:
    """Whether somebody asked to stop. The first who asks counts."""

    def __init__(self) -> None:
        self.signal_number = 0
        """Of the signal that asked for it; 0 where nobody did."""
        self.receiver = ""
        """Who got the signal, where that is not all who work together."""
        self.ends_at_once = False

    @property
    def is_set(self) -> bool:
        return self.signal_number != 0

    def set(self, signal_number: int = signal.SIGINT) -> None:
        self.signal_number = self.signal_number or signal_number

    def raise_if_set(self) -> None:
        if self.is_set:
            raise Stopped(self.signal_number, self.receiver)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises `Stopped` wherever the main thread is: for waits, before anything can be saved."""
        self.ends_at_once = True
        try:
            self.raise_if_set()
            yield
        finally:
            self.ends_at_once = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Inside, the first Ctrl-C, SIGTERM or SIGHUP sets the request, and a second one ends the process at once.

    A SIGTERM or SIGHUP within `ECHO_SECONDS` of the first signal does nothing. Signals that the process was told to
    ignore, as `nohup` does, stay ignored. Only the main thread can receive signals: in any other, only a sweep that
    started this process can set the request.
    """
    request = StopRequest()
    if os.environ.pop(STOPS_WITH_INPUT, None):
        threading.Thread(target=_obey_input, args=(request,), daemon=True).start()
    began: list[float] = []

    def handle(number: int) -> None:
        if not began:
            began.append(time.monotonic())
            # From now on the operating system itself acts on it, even while Python waits for a long computation.
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            request.set(number)
            if request.ends_at_once:
                raise Stopped(number)
            _say("stopping after this step; press Ctrl-C again to leave at once")
        elif not _is_echo(number, began[0]):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    # Echoes may come until the process has ended, so what has heard the first signal goes on to hear them.
    with _handling(handle, keeps=lambda number: bool(began)):
        yield request


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the process as Ctrl-C does: what is half written goes, and then comes the
    conventional exit code. For all work that cannot be continued later."""

    def end(number: int) -> None:
        ignore_echoes()
        _say(f"stopped by {signal.Signals(number).name}")
        raise SystemExit(128 + number)

    with _handling(end, heard=(signal.SIGTERM, signal.SIGHUP)):
        yield


def ignore_echoes() -> None:
    """All that has to be done is done, and the process ends: nothing but its end is left for SIGTERM and SIGHUP."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def heard_signals() -> Iterator[list[int]]:
    """The numbers of the signals that came, in order, without their echoes; those that were ignored stay ignored."""
    heard: list[int] = []
    began: list[float] = []

    def hear(number: int) -> None:
        if not began or not _is_echo(number, began[0]):
            began.append(time.monotonic())
            heard.append(number)

    with _handling(hear):
        yield heard


def _is_echo(number: int, began: float) -> bool:
    return number != signal.SIGINT and time.monotonic() - began < ECHO_SECONDS


@contextmanager
def _handling(
    handle: Callable[[int], None],
    heard: Sequence[signal.Signals] = SIGNALS,
    keeps: Callable[[int], bool] = lambda number: False,
) -> Iterator[None]:
    """Inside, `handle` gets every signal in `heard` that is not ignored, and those that it `keeps` afterwards, too.

    Only the main thread can receive any.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        handle(number)

    is_main = threading.current_thread() is threading.main_thread()
    wanted = [number for number in heard if is_main and signal.getsignal(number) not in (signal.SIG_IGN, None)]
    previous = {number: signal.signal(number, receive) for number in wanted}
    try:
        yield
    finally:
        for number, handler in previous.items():
            if number == signal.SIGINT or (signal.getsignal(number) is receive and not keeps(number)):
                signal.signal(number, handler)


def _obey_input(request: StopRequest) -> None:
    """Set the request when the sweep writes the number of a signal, or when it has ended, however that came.

    A sweep uses no signals for this: a run that a supervisor has signalled as well would take its word for a second
    one, and leave at once.
    """
    try:
        text = os.read(0, 16).strip()
    except OSError:
        text = b""
    number = int(text) if text.isdigit() else 0
    if not request.is_set:
        _say("stopping after this step, as the sweep asks" if number in SIGNALS else "the sweep has ended: stopping")
    request.set(number if number in SIGNALS else signal.SIGTERM)


def _say(line: str) -> None:
    """Write to standard error from a signal handler: unbuffered, since the interrupted code may be writing there.

    A process that is ended by a signal cannot show the terminal's cursor again, so that is done here.
    """
    with suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stderr.fileno()
        start = SHOW_CURSOR + "\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{start}{line}\n".encode())
