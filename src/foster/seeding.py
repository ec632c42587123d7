"""Random numbers by address: the same address always gives the same numbers, whatever ran before."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Address:
    """The place of a random choice in a run."""

    seed: int
    purpose: str
    task: int = 0
    phase: str = ""
    epoch: int = 0

    def number(self) -> int:
        """A 63-bit seed that depends on all fields."""
        text = f"{self.seed}/{self.purpose}/{self.task}/{self.phase}/{self.epoch}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(address: Address) -> torch.Generator:
    """A new CPU generator for this address."""
    return torch.Generator().manual_seed(address.number())


@contextmanager
def initialisation(address: Address) -> Iterator[None]:
    """Inside, initial weights depend on the address alone; torch's global state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed every GPU, which fork_rng(devices=[]) does not restore.
        torch.default_generator.manual_seed(address.number())
        yield


@contextmanager
def random_layers(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yields a function that seeds the generators of random layers such as dropout, on the CPU and on `device`, also
    for recorded steps; torch's global state is restored afterwards."""
    gpus = [device.index or 0] if device.type == "cuda" else []
    generators = [torch.default_generator, *(torch.cuda.default_generators[gpu] for gpu in gpus)]

    def seed(number: int) -> None:
        for each in generators:
            each.manual_seed(number)

    with torch.random.fork_rng(devices=gpus):
        yield seed
