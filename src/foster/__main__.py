"""`python -m foster` is the command `foster`."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command. Ctrl-C ends it with one line from the first moment on, also while modules are imported."""

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(2, b"foster: interrupted\n")
        os._exit(128 + number)

    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, leave)
    from foster.cli import main as run

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        # All is done and said: while Python cleans up, a Ctrl-C would only turn success into failure.
        if is_heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
