import functools
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
from made_once import made_once
from written_runs import write_run

from foster.system.signals import SIGNALS

if TYPE_CHECKING:
    from commands import Command

__all__ = ["write_run"]

# Torch is imported where it is used: the process that hands tests out to others needs none of it.

# Tests train small networks, in several processes at once: more threads would only slow each other down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# This process does not wait for the disk; the order of flushes has a test of its own.
os.fsync = lambda descriptor: None

# typer would build all commands anew at every call.
typer.main.get_command = functools.cache(typer.main.get_command)


def pytest_collection_finish() -> None:
    """The garbage collector skips what was imported, and runs less often."""
    import torch

    torch.set_num_threads(1)
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of processes come first: most of them are then run by one worker, and only its fork server imports all."""
    items.sort(key=lambda item: not _starts_processes(item.module))  # type: ignore[attr-defined]


@functools.cache
def _starts_processes(module: object) -> bool:
    return any(getattr(thing, "__module__", "") in ("forked", "held", "servers") for thing in vars(module).values())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A test and its fixtures draw the same random numbers, whatever ran before it in this process."""
    import torch

    # Without a GPU, torch.manual_seed would record a traceback for later, which takes as long as a small test.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(0)


@pytest.fixture(scope="session", autouse=True)
def _quick_beside_training() -> Iterator[None]:
    """Features of the pretrained network would take longer than the training of a test."""
    from foster.learner import train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "PRETRAINED", "resnet8")
        yield


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """A command that was stopped leaves default handlers, for its process ends; here the process goes on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """No signal is ignored in processes that a test starts, even where the tests themselves run under `nohup`."""
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS if _is_ignored(number)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Command":
    """`foster` as it is called, in this process."""
    from commands import run_main

    return lambda *arguments: run_main(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two digits that was barely trained. Tests change copies of it alone."""

    def make(folder: Path) -> None:
        from foster.data.sources import load as load_dataset
        from foster.learner.learner import Learner

        images = load_dataset("digits").train.of_classes(0, 2)
        labels = [images.class_names[label] for label in images.labels.tolist()]
        learner = Learner(backbone="resnet8", batch_size=16, memory_total=12, epochs_scale=0.006, device="cpu")
        learner.learn(list(images.images[::8]), labels[::8])
        learner.save(folder / "v1")

    return made_once(tmp_path_factory, "small-bundle", make) / "v1"


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each test."""
    return Path(shutil.copytree(small_bundle, tmp_path / "v1"))
