"""What a test may take."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float = 10.0) -> Iterator[None]:
    """Fail, rather than wait without end, where the work inside hangs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it hangs: nothing came back for {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
