import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes a shell script take the place of training, so that a test can say how a run behaves."""

    def make(script: str) -> None:
        path = tmp_path / "stand-in"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return make
