"""SGD and the learning rate of every epoch."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from foster.settings.fit import FitSettings


def learning_rate(settings: FitSettings, epoch: int) -> float:
    """The rate of an epoch: cosine from the full rate towards 0, or times `decay` at each milestone passed."""
    if settings.schedule == "cosine":
        return settings.learning_rate * (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
    passed = sum(epoch >= milestone for milestone in settings.milestones)
    return float(settings.learning_rate * settings.decay**passed)


class Sgd:
    """SGD over everything that is trained; weight decay on all of it, as the field does.

    The arithmetic is torch's. Its class is not used: the first one that is made imports torch's compiler, which takes
    as long as all that a small run does. On a GPU the rate is a tensor on the device, so that a recorded step follows
    the schedule.
    """

    def __init__(self, network: nn.Module, settings: FitSettings, device: torch.device) -> None:
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.momentum: dict[Tensor, Tensor] = {parameter: torch.zeros_like(parameter) for parameter in trained}
        self._settings = settings
        self._is_fused = device.type == "cuda"
        self._rate: Any = torch.tensor(settings.learning_rate, device=device) if self._is_fused else None
        self.set_rate(settings.learning_rate)

    def set_rate(self, rate: float) -> None:
        if self._is_fused:
            self._rate.fill_(rate)
        else:
            self._rate = rate

    @torch.no_grad()
    def step(self) -> None:
        """One step for all parameters that have a gradient."""
        parameters: list[Tensor] = [parameter for parameter in self.momentum if parameter.grad is not None]
        if self._settings.max_gradient:
            nn.utils.clip_grad_norm_(parameters, self._settings.max_gradient)
        sgd(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [self.momentum[parameter] for parameter in parameters],
            fused=self._is_fused,
            foreach=False,
            lr=self._rate,
            momentum=self._settings.momentum,
            weight_decay=self._settings.weight_decay,
            dampening=0,
            nesterov=False,
            maximize=False,
        )

    def gradients(self) -> list[Tensor]:
        """Of all parameters that have one, in a fixed order."""
        return [parameter.grad for parameter in self.momentum if parameter.grad is not None]

    def drop_gradients(self) -> None:
        for parameter in self.momentum:
            parameter.grad = None
