"""What several processes share in a training step: gradients, losses, and the statistics of BatchNorm."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from foster.data.images import Stack, as_stack
from foster.networks.freezing import is_frozen
from foster.system.crew import Crew, add_up, crew, gathered

Statistics = Literal["process", "shared"]

FEWEST_TO_SHARE = 4
"""With fewer images for each process, every process does all of the work itself."""


def average(gradients: Sequence[Tensor], losses: Tensor) -> Tensor:
    """Every gradient as the mean over all processes, in place, and the losses likewise: one parcel for all."""
    size = crew().size
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
    """The running statistics of what is trained as their mean over all processes: from here on all are the same."""
    if crew().is_alone:
        return
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not is_frozen(module):
            for values in (module.running_mean, module.running_var):
                if values is not None:
                    add_up(values.div_(crew().size))


def shares_of(images: Stack, team: Crew) -> list[Tensor]:
    """For each process which of the images are its own, of photos those that it decodes; all of them, where there are
    too few to share."""
    everything = [torch.arange(len(images))] * team.size
    if team.is_alone or len(images) < FEWEST_TO_SHARE * team.size:
        return everything
    owners = images.owners(team.size)
    shares = [(owners == rank).nonzero().squeeze(1) for rank in range(team.size)]
    return shares if all(map(len, shares)) else everything


def in_shares(
    work: Callable[[Stack], tuple[Tensor, ...]], images: Stack | Tensor, device: torch.device
) -> tuple[Tensor, ...]:
    """What `work` makes of all images, where each process does its share of them: the same everywhere, in order."""
    team, images = crew(), as_stack(images)
    shares = shares_of(images, team)
    counts = [len(own) for own in shares]
    if counts[team.rank] == len(images):
        return work(images)
    columns = [gathered(column, counts) for column in work(images[shares[team.rank]])]
    order = torch.cat(shares).argsort().to(device)
    return tuple(torch.cat(parts)[order] for parts in columns)


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm by the images of all processes, which have equally many."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name is torch's)
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        count = input.numel() // input.shape[1] * crew().size
        values = input.float()
        mean = _total(values.sum((0, 2, 3))) / count
        centred = values - mean[:, None, None]
        variance = _total(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            share = self.momentum if self.momentum is not None else 1 / (int(self.num_batches_tracked or 0) + 1)
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance * (count / max(1, count - 1)), share)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
        normalised = centred * (variance + self.eps).rsqrt()[:, None, None]
        scaled = torch.addcmul(self.bias[:, None, None], normalised, self.weight[:, None, None])
        return scaled.to(input.dtype)


class _Total(torch.autograd.Function):
    """The sum over all processes; so is its gradient, for each has a part in everybody's loss."""

    @staticmethod
    def forward(context: object, values: Tensor) -> Tensor:
        return add_up(values.clone())

    @staticmethod
    def backward(context: object, *gradients: Tensor) -> Tensor:
        return add_up(gradients[0].clone())


def _total(values: Tensor) -> Tensor:
    total: Tensor = _Total.apply(values)  # type: ignore[no-untyped-call]
    return total


@contextmanager
def shared_statistics(modules: Iterable[nn.Module], is_wanted: bool) -> Iterator[None]:
    """Inside, the BatchNorms of what is trained take the statistics of all processes' images."""
    norms = [
        part
        for module in modules
        for part in module.modules()
        if is_wanted and type(part) is nn.BatchNorm2d and not is_frozen(part)
        if part.affine and part.track_running_stats  # others are from outside, and keep to themselves
    ]
    for part in norms:
        part.__class__ = SharedBatchNorm2d
    try:
        yield
    finally:
        for part in norms:
            part.__class__ = nn.BatchNorm2d
