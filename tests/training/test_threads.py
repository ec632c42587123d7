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


def test_where_nobody_knows_the_load_all_cores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def unobtainable() -> None:
        raise OSError("Load averages are unobtainable")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("torch.set_num_threads", lambda count: pytest.fail("nobody asked for fewer"))
    monkeypatch.setattr("os.getloadavg", unobtainable)
    assert use_free_cores() is None
    monkeypatch.delattr("os.getloadavg")
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
    monkeypatch.setattr(threads, "busy_cores", lambda: 16.0)
    assert use_free_cores() is None, "nor does it keep for itself what has just begun"
    assert chosen == [1, 2, 15, 15]
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)), raising=False)
    assert use_free_cores() == (
        "computing on 3 of 4 cores, since other programs keep this machine busy (OMP_NUM_THREADS=4 takes all)"
    )
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    assert use_free_cores()
    assert chosen[-1] == 2, "whoever wanted fewer has fewer"
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr(threads, "busy_cores", lambda: pytest.fail("nobody looks where the machine is idle"))
    assert use_free_cores() is None


def test_busy_cores_are_those_that_were_not_idle_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Waiting for a disk is idle, guests count as the programs that they are, and other cores are not ours."""

    def statistics(busy: int, idle: int) -> str:
        others = f"cpu 9 9 9 9 9 9 9 9 0 0\ncpu7 {busy} 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n"
        own = f"cpu0 {busy} 0 0 {idle} {idle} 0 0 0 {busy} 0\ncpu1 7 0 3 {idle} 5 0 0 0 0 0\ncpu2 7 0 3 9 5 0 0 0 0 0\n"
        return others + own

    def busy_between(*texts: str) -> float:
        file.write_text(texts[0])
        monkeypatch.setattr(threads.time, "sleep", lambda seconds: file.write_text(texts[1]))
        return busy_cores()

    file = tmp_path / "stat"
    monkeypatch.setattr(threads, "STATISTICS", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert busy_between(statistics(100, 100), statistics(110, 105)) == pytest.approx(10 / 20 + 0 + 0)
    assert busy_between("cpu0 1 0 0 9 0 0 0 0\n", statistics(110, 105)) == 3, "a core came meanwhile"
    assert busy_between("\n", "\n") == 3
    monkeypatch.setattr(threads, "STATISTICS", tmp_path / "none")
    assert busy_cores() == 3
