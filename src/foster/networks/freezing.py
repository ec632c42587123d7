"""Freezing: a frozen module has no trained parameters and stays in eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

ModuleType = TypeVar("ModuleType", bound=nn.Module)


def freeze(module: ModuleType) -> ModuleType:
    """Stop the training of all parameters and put the module in eval mode. Returns the module itself."""
    return module.requires_grad_(False).eval()


def unfreeze(module: ModuleType) -> ModuleType:
    """Let all parameters be trained and put the module in train mode. Returns the module itself."""
    return module.requires_grad_(True).train()


def is_frozen(module: nn.Module) -> bool:
    """Whether the module has parameters and none of them is trained."""
    trained = [parameter.requires_grad for parameter in module.parameters()]
    return bool(trained) and not any(trained)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Inside, the network is in eval mode; afterwards the mode of every part is restored."""
    was_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in was_training:
            module.training = True


def training_mode(network: nn.Module) -> None:
    """Put the network in train mode, and every frozen part of it in eval mode.

    Otherwise the BatchNorm statistics of a frozen branch would change with each batch.
    """
    network.train()
    for module in network.modules():
        if is_frozen(module):
            module.eval()
