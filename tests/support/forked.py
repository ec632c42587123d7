"""The command in a process that a server forks: a fresh start, but at once."""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from held import hold

from foster.cli import main
from foster.system.signals import SIGNALS


def forking() -> ForkServerContext:
    """A server that has imported all but computed nothing: importing takes longer than all that a small run does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["foster.experiment.run", "foster.cli.bundle_actions", "foster.serving.app", "uvicorn"]
    )
    return context


def copy_this_process() -> None:
    """Make that server now as a copy of this process, which has imported all by itself and computed nothing yet."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads, which do not concern it
        patch.setattr("multiprocessing.util.spawnv_passfds", _copied)
        forking()
        ensure_running()


def _copied(program: str, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
    """What `spawnv_passfds` does, for a program that is this one: its last argument is what it executes."""
    if process := os.fork():
        return process
    try:
        faulthandler.disable()
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        for number in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {0, 1, 2, *descriptors}:
            with contextlib.suppress(OSError):  # the one through which that folder was read is closed
                os.close(number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        exec(arguments[-1], {})
    finally:
        os._exit(0)


def started(
    given: Sequence[str],
    said: Path,
    held_at: tuple[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """`foster` with these words; standard error goes to a file, and output to the one beside it that ends in .out.
    `held_at`: see `held.hold`."""
    process = forking().Process(target=_run, args=(given, said, held_at, environment or {}))
    process.start()
    return process


def _run(given: Sequence[str], said: Path, held_at: tuple[Path, str] | None, environment: Mapping[str, str]) -> None:
    for number in SIGNALS:  # the server may have been started where one was ignored
        signal.signal(number, signal.SIG_DFL)
    for number, path in ((1, said.with_name(f"{said.name}.out")), (2, said)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(environment)
    if held_at:
        hold(*held_at)
    sys.argv = ["foster", *given]
    main()
