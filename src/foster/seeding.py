"""Randomness with an address: the same address always gives the same numbers, whatever ran before."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Address:
    """Where in a run a random choice is made."""

    seed: int
    purpose: str
    task: int = 0
    phase: str = ""
    epoch: int = 0

    def number(self) -> int:
        """A 63-bit seed that depends on every part of the address."""
        text = f"{self.seed}/{self.purpose}/{self.task}/{self.phase}/{self.epoch}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(address: Address) -> torch.Generator:
    """A fresh generator on the CPU for this address."""
    return torch.Generator().manual_seed(address.number())


@contextmanager
def initialisation(address: Address) -> Iterator[None]:
    """Weights that are initialised inside depend on the address alone; the global state is put back after."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed every GPU as well and leave them so.
        torch.default_generator.manual_seed(address.number())
        yield


@contextmanager
def random_layers(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yields a function that seeds what random layers such as dropout draw from, on the CPU and on `device`, also in
    recorded steps; the global state is put back after."""
    gpus = [device.index or 0] if device.type == "cuda" else []
    generators = [torch.default_generator, *(torch.cuda.default_generators[gpu] for gpu in gpus)]

    def seed(number: int) -> None:
        for each in generators:
            each.manual_seed(number)

    with torch.random.fork_rng(devices=gpus):
        yield seed
