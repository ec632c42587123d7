import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process only, where no machine fails: the order of flushes has a test of its own."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
