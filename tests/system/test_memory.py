import pytest

from foster.system.memory import main_memory, num_cores


def test_the_size_of_the_memory_is_known_or_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = main_memory()
    assert found is None or found > 2**28

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    assert main_memory() is None


def test_only_the_cores_that_this_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {1, 3, 4}, raising=False)
    assert num_cores() == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert num_cores() == 1
