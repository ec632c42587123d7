"""Threads for the cores that are free."""

import os
from pathlib import Path

import pytest

from foster.training import threads
from foster.training.threads import busy_cores, free_cores, use_free_cores


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
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "busy_cores", lambda: 2.0)
    assert use_free_cores() == (
        "computing on 1 of 2 cores, since other programs keep this machine busy (OMP_NUM_THREADS=2 takes all)"
    )
    monkeypatch.setattr(threads, "busy_cores", lambda: 0.1)
    assert use_free_cores() is None, "the load is that of a program that has ended"
    assert chosen == [1, 2]
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 16)
    monkeypatch.setattr(threads, "busy_cores", lambda: 1.0)
    assert use_free_cores() is None, "nobody misses one of sixteen"
    assert chosen == [1, 2, 15]


def test_busy_cores_are_those_that_were_not_idle_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def statistics(busy: int, idle: int) -> str:
        others = "cpu 9 9 9 9 9 9 9 9 0 0\ncpu7 999 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n"
        return others + f"cpu0 {busy} 0 0 {idle} 5 0 0 0 0 0\ncpu1 7 0 3 {idle} 5 0 0 0 0 0\n"

    file = tmp_path / "stat"
    file.write_text(statistics(100, 100))
    monkeypatch.setattr(threads, "STATISTICS", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr(threads.time, "sleep", lambda seconds: file.write_text(statistics(115, 105)))
    assert busy_cores() == pytest.approx(15 / 20 + 0)
    monkeypatch.setattr(threads, "STATISTICS", tmp_path / "none")
    assert busy_cores() == 2
