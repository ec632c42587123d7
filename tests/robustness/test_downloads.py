"""A run whose data must come from the web first: it can be stopped there, and says what it does."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_cifar import ARCHIVE, Web, serving

from foster.cli import main
from foster.settings.datasets import CATALOGUE

pytestmark = pytest.mark.usefixtures("default_signals")


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """CIFAR-100 is the small one, and comes from this machine."""
    monkeypatch.setenv("no_proxy", "*")
    with serving() as web:
        facts = replace(CATALOGUE["cifar100"], published=web.published, num_classes=3, num_train=5, num_test=2)
        monkeypatch.setitem(CATALOGUE, "cifar100", facts)
        yield web


def send_sigterm(web: Web) -> None:
    """Once the download waits for a server that sends nothing more."""
    assert web.is_held.wait(60)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_while_downloading_ends_the_command_at_once_and_leaves_nothing_behind(
    tmp_path: Path,
    web: Web,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    web.holds_after = 200
    given = ["run", "cifar100-b0-inc10", "base_classes=1", "increment=1", "device=cpu"]
    monkeypatch.setattr(sys, "argv", ["foster", *given, "--data", f"{tmp_path}/data", "--out", f"{tmp_path}/run"])
    sender = threading.Thread(target=send_sigterm, args=(web,))
    sender.start()
    began = time.monotonic()
    with pytest.raises(SystemExit) as left:
        main()
    assert time.monotonic() - began < 20
    sender.join()
    assert left.value.code == 143
    assert capfd.readouterr().err.splitlines() == [f"downloading {ARCHIVE}", "foster: stopped by SIGTERM"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
