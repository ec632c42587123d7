"""The main memory that limits refer to."""

from pathlib import Path

import pytest

from foster.system import memory


def test_the_limit_of_a_container_is_its_main_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LIMITS_OF_CONTAINERS", (tmp_path / "memory.max",))
    machine = memory.main_memory()
    assert machine > 2**20
    for content, expected in (("max\n", machine), (str(2**63 - 4096), machine), ("1048576\n", 2**20)):
        (tmp_path / "memory.max").write_text(content)
        assert memory.main_memory() == expected
