"""Processes that train one network together, started by `torchrun`: who we are, and what all agree on.

Alone, everything here does nothing and costs nothing. What travels is PyTorch's business (NCCL, or gloo on a CPU).
"""

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from foster.errors import DeviceError, SettingsError
from foster.system.output import complain
from foster.system.signals import StopRequest

if TYPE_CHECKING:
    from torch import Tensor

SECONDS_TO_ANSWER = 3.0
"""How long those who are left wait for a sign of life from the others, once one of them is missed."""

_LOST = re.compile(r"connection (closed|reset|refused)|broken pipe|gloo|nccl|timed out|peer", re.IGNORECASE)


@dataclass(frozen=True)
class Crew:
    """Which of how many processes this one is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def part_of(self, whole: slice) -> slice:
        """This process's part of things that all share equally."""
        own = (whole.stop - whole.start) // self.size
        start: int = whole.start + self.rank * own
        return slice(start, start + own)


ALONE = Crew()


def crew() -> Crew:
    """The crew that this process belongs to."""
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        return ALONE
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return Crew(distributed.get_rank(), distributed.get_world_size())


def speaks() -> bool:
    """Whether this process's words are meant for the terminal: of several, the first one's."""
    return os.environ.get("RANK", "0") == "0"


def local_device(name: str) -> str:
    """The device `name` for this process: of several on a machine, each takes a GPU of its own."""
    local_rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{local_rank}" if local_rank is not None and name == "cuda" else name


@contextmanager
def joined() -> Iterator[Crew]:
    """Inside, this process belongs to the crew that torchrun started; alone where there is none.

    When another one is lost, the first of those who are left says which, and all end with a DeviceError.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        yield ALONE
        return
    import torch
    from torch import distributed

    if distributed.is_initialized():
        yield crew()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group(backend, timeout=timedelta(minutes=30))
    team = crew()
    store = distributed.distributed_c10d._get_default_store()
    store.set(f"foster/who/{team.rank}", f"process {os.getpid()} on {socket.gethostname()}")
    try:
        yield team
    except RuntimeError as error:
        if not _LOST.search(str(error)):
            raise
        lost = _lost(team, store)
        if not lost:
            raise
        line = f"{' and '.join(lost.values())} is gone: all {team.size} processes stop"
        if 0 in lost and team.rank == min(set(range(team.size)) - lost.keys()):
            complain(line)  # the one that speaks for all cannot
        raise DeviceError(line) from None
    finally:
        with suppress(RuntimeError):
            distributed.destroy_process_group()


def _lost(team: Crew, store: Any) -> dict[int, str]:
    """The ranks that give no sign of life any more, each with its name, such as `rank 1 (process 12 on host)`."""
    keys = {rank: f"foster/alive/{rank}" for rank in range(team.size)}
    with suppress(RuntimeError):
        store.set(keys[team.rank], "1")
        ends = time.monotonic() + SECONDS_TO_ANSWER
        while time.monotonic() < ends and not store.check(list(keys.values())):
            time.sleep(0.05)
        gone = [rank for rank, key in keys.items() if not store.check([key])]
        return {rank: f"rank {rank} ({store.get(f'foster/who/{rank}').decode()})" for rank in gone}
    return {team.size: "another process"}


def check_divides(batch_size: int) -> None:
    """Refuse a number of images that the processes cannot share equally."""
    size = crew().size
    if batch_size % size:
        raise SettingsError(f"batch_size {batch_size} cannot be shared by {size} processes; start as many as divide it")


def barrier() -> None:
    """Wait until all are here."""
    if not crew().is_alone:
        agreed(False)


def agreed(is_wanted: bool) -> bool:
    """Whether any of the processes wants it: all get the same answer. All must ask at the same place."""
    if crew().is_alone:
        return is_wanted
    import torch
    from torch import distributed

    flag = torch.tensor([int(is_wanted)])
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag.item())


def share_stop(stop: StopRequest) -> None:
    """Whoever of the processes was asked to stop, all are, and know which one it was. All must ask together."""
    team = crew()
    if team.is_alone:
        return
    import torch

    numbers = [int(own) for own in gathered(torch.tensor([stop.signal_number]), [1] * team.size)]
    asked = [rank for rank, number in enumerate(numbers) if number]
    if asked:
        stop.set(numbers[asked[0]])
        stop.receiver = "" if len(asked) == team.size else " and ".join(f"rank {rank}" for rank in asked)


def of_first(value: float) -> float:
    """What the first process says: times differ, but what follows from them must not. All must ask together."""
    if crew().is_alone:
        return value
    import torch
    from torch import distributed

    said = torch.tensor([value], dtype=torch.float64)
    distributed.broadcast(said, 0)
    return float(said.item())


def add_up(values: "Tensor") -> "Tensor":
    """The sum over all processes, in place."""
    from torch import distributed

    if not crew().is_alone:
        distributed.all_reduce(values)
    return values


def gathered(own: "Tensor", counts: Sequence[int]) -> "list[Tensor]":
    """What each process has, `[counts[rank], ...]`, for all of them."""
    import torch
    from torch import distributed

    if crew().is_alone:
        return [own]
    most = max(counts)
    padded = own.new_zeros((most, *own.shape[1:]))
    padded[: len(own)] = own
    rooms = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(rooms, padded.contiguous())
    return [room[:count] for room, count in zip(rooms, counts, strict=True)]
