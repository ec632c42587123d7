import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from foster.cli import main


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the command with these words in an empty folder, and returns its exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["foster", *words])
        with pytest.raises(SystemExit) as ending:
            main()
        return int(ending.value.code or 0)

    return run


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes a shell script take the place of training, so that a test can say how a run behaves."""

    def make(script: str) -> None:
        path = tmp_path / "stand-in"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return make
