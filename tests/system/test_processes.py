"""Processes that train together: alone nothing happens, and two agree, add up and gather."""

import multiprocessing
import signal
import socket
from typing import Any

import pytest
import torch

from foster.errors import SettingsError
from foster.system import processes
from foster.system.processes import (
    ALONE,
    ProcessGroup,
    add_up,
    agreed,
    barrier,
    check_divides,
    gathered,
    is_first_process,
    joined,
    local_device,
    process_group,
    stop_together,
)
from foster.system.signals import Stopped, StopRequest

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_alone_everything_stays_as_it_is() -> None:
    with joined() as found:
        assert found is process_group() is ALONE
        assert found.is_first
        assert [agreed(True), agreed(False)] == [True, False]
        barrier()
        values = torch.arange(3)
        assert add_up(values) is values
        assert gathered(values, [3])[0] is values
        check_divides(7)
    assert is_first_process()


def test_equal_parts_cover_the_whole_once() -> None:
    parts = [ProcessGroup(rank, 4).part_of(slice(8, 24)) for rank in range(4)]
    assert [(part.start, part.stop) for part in parts] == [(8, 12), (12, 16), (16, 20), (20, 24)]


def test_each_of_several_on_a_machine_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("RANK", "3")
    assert [local_device(name) for name in ("cuda", "cuda:0", "cpu")] == ["cuda:3", "cuda:0", "cpu"]
    assert not is_first_process()


def _member(results: Any) -> None:
    with joined() as found:
        sums = add_up(torch.tensor([1.0, found.rank]))
        part = torch.full((found.rank + 1, 2), found.rank)
        parts = [part.tolist() for part in gathered(part, [1, 2])]
        try:
            check_divides(9)
            refusal = ""
        except SettingsError as error:
            refusal = str(error)
        answers = [agreed(found.rank == 1), agreed(False)]
        stop, exchange = StopRequest(), processes.highest

        def requested_meanwhile(number: int) -> int:
            answer = exchange(number)
            if found.rank == 1:
                stop.set(signal.SIGTERM)
            return answer

        processes.highest = requested_meanwhile
        stop_together(stop)
        assert stop.is_set == (found.rank == 1)
        with pytest.raises(Stopped) as stopped:
            stop_together(stop)
        words = f"{stopped.value} ({stopped.value.exit_code})"
        barrier()
    results.put((found.rank, found.size, sums.tolist(), parts, answers, refusal, words))


def _pair(target: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv("WORLD_SIZE", "2")
    results = FORK.Queue()
    members = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        members.append(FORK.Process(target=target, args=(results,)))
        members[-1].start()
    return results, members


def test_two_processes_add_up_gather_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    results, members = _pair(_member, monkeypatch)
    found = sorted(results.get(timeout=60) for _ in members)
    for member in members:
        member.join(timeout=60)
        assert member.exitcode == 0
    for rank, (found_rank, size, sums, parts, answers, refusal, stopped) in enumerate(found):
        assert (found_rank, size) == (rank, 2)
        assert sums == [2.0, 1.0]
        assert parts == [[[0, 0]], [[1, 1], [1, 1]]]
        assert answers == [True, False]
        assert refusal.startswith("batch_size 9 ")
        assert stopped == "stopped by SIGTERM (143)"
