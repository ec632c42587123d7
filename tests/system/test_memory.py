import pytest

from foster.system.memory import main_memory


def test_the_size_of_the_memory_is_known_or_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = main_memory()
    assert found is None or found > 2**28

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    assert main_memory() is None
