"""Communication of several processes in training: gradients, losses, BatchNorm statistics, and shares of inference."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from foster.data.images import Stack, as_stack
from foster.networks.modules import is_frozen
from foster.system.processes import ProcessGroup, add_up, gathered, process_group

FEWEST_TO_SHARE = 4
"""With fewer images per process, every process computes all images."""


def average(gradients: Sequence[Tensor], losses: Tensor) -> Tensor:
    """Average the gradients, in place, and the losses over all processes, in one all-reduce."""
    size = process_group().size
    if size == 1:
        return losses
    parcel = torch.cat([*(gradient.reshape(-1) for gradient in gradients), losses.to(gradients[0].dtype)])
    add_up(parcel.div_(size))
    *parts, mean_losses = parcel.split([*(gradient.numel() for gradient in gradients), len(losses)])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape))
    averaged: Tensor = mean_losses.to(losses.dtype)
    return averaged


@torch.no_grad()
def agree_on_statistics(network: nn.Module) -> None:
    """Average the running statistics of trained BatchNorm layers over all processes."""
    if process_group().is_alone:
        return
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not is_frozen(module):
            for values in (module.running_mean, module.running_var):
                if values is not None:
                    add_up(values.div_(process_group().size))


def shares_of(images: Stack, team: ProcessGroup) -> list[Tensor]:
    """The indices of the images of each process. Photos belong to the process that decodes them. If there are too few
    images to divide, every process has all of them."""
    everything = [torch.arange(len(images))] * team.size
    if team.is_alone or len(images) < FEWEST_TO_SHARE * team.size:
        return everything
    owners = images.owners(team.size)
    shares = [(owners == rank).nonzero().squeeze(1) for rank in range(team.size)]
    return shares if all(map(len, shares)) else everything


def in_shares(
    work: Callable[[Stack], tuple[Tensor, ...]], images: Stack | Tensor, device: torch.device
) -> tuple[Tensor, ...]:
    """The results of `work` for all images, in order. Each process computes a share, and all processes get all
    results."""
    team, images = process_group(), as_stack(images)
    shares = shares_of(images, team)
    counts = [len(share) for share in shares]
    if counts[team.rank] == len(images):
        return work(images)
    columns = [gathered(column, counts) for column in work(images[shares[team.rank]])]
    order = torch.cat(shares).argsort().to(device)
    return tuple(torch.cat(parts)[order] for parts in columns)


@contextmanager
def shared_statistics(modules: Iterable[nn.Module], is_wanted: bool) -> Iterator[None]:
    """Inside, trained BatchNorm layers use the statistics of all processes (`nn.SyncBatchNorm`)."""
    norms = [
        part
        for module in modules
        for part in module.modules()
        if is_wanted and type(part) is nn.BatchNorm2d and not is_frozen(part)
        if part.affine and part.track_running_stats  # modules from outside may have neither
    ]
    for part in norms:
        part.__class__ = nn.SyncBatchNorm  # type: ignore[assignment]
        part.__dict__["process_group"] = None  # all processes
    try:
        yield
    finally:
        for part in norms:
            part.__class__ = nn.BatchNorm2d
            del part.__dict__["process_group"]
