"""Threads for the cores that are free."""

import pytest

from foster.training.threads import free_cores, use_free_cores


@pytest.mark.parametrize(("cores", "load", "free"), [(2, 0.1, 2), (2, 1.2, 1), (2, 9.0, 1), (16, 4.4, 12)])
def test_busy_cores_are_left_to_others(cores: int, load: float, free: int) -> None:
    assert free_cores(cores, load) == free


def test_who_says_how_many_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert use_free_cores() is None


def test_what_is_left_to_others_is_told_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.getloadavg", lambda: (1.2, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    assert use_free_cores() == (
        "computing on 1 of 2 cores, since other programs keep this machine busy (OMP_NUM_THREADS=2 takes all)"
    )
    assert chosen == [1]
