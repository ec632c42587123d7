"""SGD and the learning rate of every epoch."""

import math

import torch
from torch import nn

from foster.method_settings import FitSettings


def learning_rate(settings: FitSettings, epoch: int) -> float:
    """The rate of an epoch: cosine from the full rate towards 0, or times `decay` at each milestone passed."""
    if settings.schedule == "cosine":
        return settings.learning_rate * (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
    passed = sum(epoch >= milestone for milestone in settings.milestones)
    return float(settings.learning_rate * settings.decay**passed)


def make_optimizer(network: nn.Module, settings: FitSettings, device: torch.device) -> torch.optim.SGD:
    """SGD over everything that is trained; weight decay on all of it, as the field does.

    On a GPU the rate is a tensor on the device, so that a recorded step follows the schedule.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    on_gpu = device.type == "cuda"
    rate = torch.tensor(settings.learning_rate, device=device) if on_gpu else settings.learning_rate
    return torch.optim.SGD(
        trained, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=True if on_gpu else None
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
