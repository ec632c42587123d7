"""The command in a process that a server forks: a fresh start, but at once."""

import fcntl
import multiprocessing
import os
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from multiprocessing import util
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from held import hold

from foster import cli
from foster.bundle.folder import writing_folder
from foster.cli import main
from foster.system.signals import SIGNALS

PRELOADED = ["filelock", "foster.cli.photos", "foster.cli.texts", "foster.experiment.run", "foster.methods.foster"]
PRELOADED += ["foster.reports.progress", "foster.reports.tables", "foster.serving.app", "foster.serving.run"]


def forking() -> ForkServerContext:
    """A server that has imported all but computed nothing: importing takes longer than all that a small run does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def started(
    given: Sequence[str],
    said: Path,
    held_at: tuple[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """`foster` with these words; standard error goes to a file, and output to the one beside it that ends in .out.
    Where `said` is a terminal, it becomes the terminal of the process. `held_at`: see `held.hold`."""
    process = forking().Process(target=_run, args=(given, said, held_at, environment or {}))
    process.start()
    return process


def _run(given: Sequence[str], said: Path, held_at: tuple[Path, str] | None, environment: Mapping[str, str]) -> None:
    for number in SIGNALS:  # the server may have been started where one was ignored
        signal.signal(number, signal.SIG_DFL)
    if said.is_char_device():
        os.setsid()
        terminal = os.open(said, os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for number in (0, 1, 2):
            os.dup2(terminal, number)
        os.close(terminal)
        # The streams of the server may belong to files; and Python, unlike multiprocessing, ignores that they are lost.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        util._flush_std_streams = lambda: None  # type: ignore[attr-defined]
    else:
        for number, path in ((1, said.with_name(f"{said.name}.out")), (2, said)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(environment)
    if held_at:
        hold(*held_at)
    sys.argv = ["foster", *given]
    main()


def write_and_wait(folder: Path, said: Path) -> None:
    """A command that cannot be continued is sent SIGTERM while it writes."""

    def work() -> None:
        with writing_folder(folder / "bundle"):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    cli.app = work
    main()
