"""The process group that `torchrun` started: the rank of this process, and collective operations.

Without torchrun there is one process, and these functions do nothing.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from foster.errors import SettingsError
from foster.system.signals import StopRequest

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process, and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def part_of(self, whole: slice) -> slice:
        """This process's equal share of a range."""
        length = (whole.stop - whole.start) // self.size
        start: int = whole.start + self.rank * length
        return slice(start, start + length)


ALONE = ProcessGroup()


def process_group() -> ProcessGroup:
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        return ALONE
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return ProcessGroup(distributed.get_rank(), distributed.get_world_size())


def is_first_process() -> bool:
    """Whether this is rank 0, the only process that prints; known before the group is joined."""
    return os.environ.get("RANK", "0") == "0"


def local_device(name: str) -> str:
    """The device for this process. Under torchrun, `cuda` is the GPU with the local rank of the process."""
    local_rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{local_rank}" if local_rank is not None and name == "cuda" else name


@contextmanager
def joined() -> Iterator[ProcessGroup]:
    """Join the process group that torchrun started, and leave it at the end."""
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        yield ALONE
        return
    import torch
    from torch import distributed

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield process_group()
    finally:
        with suppress(RuntimeError):
            distributed.destroy_process_group()


def check_divides(batch_size: int) -> None:
    """Refuse a batch that the processes cannot share equally."""
    size = process_group().size
    if batch_size % size:
        raise SettingsError(
            f"batch_size {batch_size} cannot be shared by {size} processes; start a number that divides it"
        )


def barrier() -> None:
    """Wait until all processes have called it."""
    highest(0)


def highest(number: int) -> int:
    """The highest number of all processes. They must call it together."""
    if process_group().is_alone:
        return number
    import torch
    from torch import distributed

    numbers = torch.tensor([number])
    distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
    return int(numbers.item())


def agreed(is_wanted: bool) -> bool:
    """True on every process if it is wanted on any. All processes must call it together."""
    return bool(highest(is_wanted))


def stop_together(stop: StopRequest) -> None:
    """Raise Stopped on every process if a stop was requested on any. All processes must call it together.

    A request during the exchange counts at the next call, so that no process stops alone.
    """
    if number := highest(stop.signal_number):
        stop.set(number)
        stop.raise_if_set()


def add_up(values: "Tensor") -> "Tensor":
    """The sum over all processes, in place."""
    from torch import distributed

    if not process_group().is_alone:
        distributed.all_reduce(values)
    return values


def gathered(tensor: "Tensor", counts: Sequence[int]) -> "list[Tensor]":
    """The tensors of all processes, `[counts[rank], ...]` each."""
    import torch
    from torch import distributed

    if process_group().is_alone:
        return [tensor]
    padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    received = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(received, padded.contiguous())
    return [part[:count] for part, count in zip(received, counts, strict=True)]
