"""Optimizers and learning-rate schedules."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from foster.networks.network import Backbone
from foster.settings.fit import FitSettings

STATE = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square")}
"""The state tensors of each optimizer, one for every parameter; Adam also has a step counter."""

BYTES_WITHOUT_STATE = 12
"""Bytes of a trained parameter: float32 weight, gradient, and a copy of the weight."""

BETA_OF_SQUARES, EPSILON = 0.999, 1e-8
"""Adam's second beta and epsilon: torch's defaults."""


def bytes_of_parameter(settings: FitSettings) -> int:
    """The bytes of a trained parameter, including the optimizer's state."""
    return BYTES_WITHOUT_STATE + 4 * len(STATE[settings.optimizer])


def learning_rate(settings: FitSettings, epoch: int) -> float:
    """The learning rate of an epoch: a linear warm-up, then a cosine from the full rate towards 0, or the full rate
    multiplied by `decay` at each milestone."""
    warmup = settings.warmup_epochs
    if epoch < warmup:
        return settings.learning_rate * (epoch + 1) / (warmup + 1)
    if settings.schedule == "cosine":
        return settings.learning_rate * (1 + math.cos(math.pi * (epoch - warmup) / (settings.epochs - warmup))) / 2
    passed = sum(epoch >= milestone for milestone in settings.milestones)
    return float(settings.learning_rate * settings.decay**passed)


class Optimizer:
    """SGD, Adam or AdamW for all trained parameters, with weight decay on all of them.

    It calls torch's functional optimizers. torch's optimizer classes import torch's compiler when the first one is
    made, which takes as long as a small run. On a GPU, learning rates are tensors on the device, so that a recorded
    step follows the schedule.
    """

    def __init__(self, network: nn.Module, settings: FitSettings, device: torch.device) -> None:
        self._names: dict[Tensor, str] = {
            parameter: name for name, parameter in network.named_parameters() if parameter.requires_grad
        }
        self._settings = settings
        self._is_fused = device.type == "cuda"
        self.state: dict[str, dict[Tensor, Tensor]] = {
            kind: {parameter: torch.zeros_like(parameter) for parameter in self._names}
            for kind in STATE[settings.optimizer]
        }
        if settings.optimizer != "sgd":
            self.state["steps"] = {parameter: torch.zeros((), device=device) for parameter in self._names}
        self._groups = _groups(network, list(self._names), settings.head_rate)
        self._rates: list[Any] = [torch.zeros((), device=device) if self._is_fused else 0.0 for _ in self._groups]
        self.set_rate(settings.learning_rate)

    def set_rate(self, rate: float) -> None:
        for index, (factor, _) in enumerate(self._groups):
            if self._is_fused:
                self._rates[index].fill_(rate * factor)
            else:
                self._rates[index] = rate * factor

    @torch.no_grad()
    def step(self) -> None:
        """One step for all parameters that have a gradient."""
        if self._settings.max_gradient:
            nn.utils.clip_grad_norm_(
                [parameter for parameter in self._names if parameter.grad is not None], self._settings.max_gradient
            )
        for (_, group), rate in zip(self._groups, self._rates, strict=True):
            if parameters := [parameter for parameter in group if parameter.grad is not None]:
                self._update(parameters, rate)

    def _update(self, parameters: list[Tensor], rate: Any) -> None:
        settings = self._settings
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        state: list[Any] = [[tensors[parameter] for parameter in parameters] for tensors in self.state.values()]
        common: dict[str, Any] = {"lr": rate, "weight_decay": settings.weight_decay, "maximize": False}
        common |= {"fused": self._is_fused, "foreach": False}
        if settings.optimizer == "sgd":
            momentum: dict[str, Any] = {"momentum": settings.momentum, "dampening": 0, "nesterov": settings.nesterov}
            sgd(parameters, gradients, state[0], **momentum, **common)
            return
        means, squares, steps = state
        specific: dict[str, Any] = {"beta1": settings.momentum, "beta2": BETA_OF_SQUARES, "eps": EPSILON}
        specific |= {"amsgrad": False, "capturable": self._is_fused}
        update = adamw if settings.optimizer == "adamw" else adam
        update(parameters, gradients, means, squares, [], steps, **specific, **common)

    def gradients(self) -> list[Tensor]:
        """The gradients of all parameters that have one, in a fixed order."""
        return [parameter.grad for parameter in self._names if parameter.grad is not None]

    def drop_gradients(self) -> None:
        for parameter in self._names:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """All state tensors by name."""
        return {
            f"{kind}.{self._names[parameter]}": tensor
            for kind, of in self.state.items()
            for parameter, tensor in of.items()
        }

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        tensors = self.tensors()
        if tensors.keys() != saved.keys():
            raise ValueError("its optimizer has other parameters")
        for name, tensor in saved.items():
            tensors[name].copy_(tensor)


def _groups(network: nn.Module, trained: list[Tensor], head_rate: float) -> list[tuple[float, list[Tensor]]]:
    """Parameter groups with the factors of their learning rates: backbones (1), and the rest, the head
    (`head_rate`)."""
    if head_rate == 1:
        return [(1.0, trained)]
    backbones = [module for module in network.modules() if isinstance(module, Backbone)]
    inside: set[Tensor] = {parameter for backbone in backbones for parameter in backbone.parameters()}
    return [
        (1.0, [parameter for parameter in trained if parameter in inside]),
        (head_rate, [parameter for parameter in trained if parameter not in inside]),
    ]
