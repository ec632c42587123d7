"""A head behind two BatchNorms of its features while it is trained, and one linear head afterwards."""

import torch
from torch import Tensor, nn

from foster.networks.freezing import freeze
from foster.networks.heads import Head


class ResidualHead(Head):
    """z = W (BN_new(f) + BN_old(f)) + b: one head for the features as they become and for the features as they were.

    `new_norm` is trained and follows the features of each batch; `old_norm` keeps the scale and place that old features
    had. Both together start as the identity, so that the head says at first what it said without them.
    """

    def __init__(self, head: Head, old_features: Tensor) -> None:
        """`head` with its classes and weights, and features `[N, d]` as the old network makes them."""
        super().__init__(head.in_features, 0)
        self.weight, self.bias = (nn.Parameter(part.detach().clone()) for part in head.affine)
        self.new_norm, self.old_norm = _half(old_features), freeze(_half(old_features))

    def forward(self, features: Tensor) -> Tensor:
        features = features.to(self.weight.dtype)
        logits: Tensor = self.linear(self.new_norm(features) + self.old_norm(features), self.weight, self.bias)
        return logits

    @property
    @torch.no_grad()
    def affine(self) -> tuple[Tensor, Tensor]:
        """Weight and bias that make the same logits of features in eval mode, the norms folded into them."""
        scales, shifts = zip(*(_affine(norm) for norm in (self.new_norm, self.old_norm)), strict=True)
        weight = self.weight.double()
        folded = weight * sum(scales), self.bias.double() + weight @ sum(shifts)
        return folded[0].to(self.weight.dtype), folded[1].to(self.weight.dtype)

    def folded(self) -> Head:
        """The linear head that says the same in eval mode."""
        return Head.from_values(*self.affine)


@torch.no_grad()
def _half(features: Tensor) -> nn.BatchNorm1d:
    """A BatchNorm that halves its input where that is distributed as these features `[N, d]`."""
    variance, mean = torch.var_mean(features.float(), dim=0, correction=0)
    norm = nn.BatchNorm1d(features.shape[1], device=features.device)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    norm.weight.copy_((variance + norm.eps).sqrt() / 2)
    norm.bias.copy_(mean / 2)
    return norm


def _affine(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """`scale` and `shift` `[d]`, in double, with which the norm in eval mode is f * scale + shift."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    return scale, norm.bias.double() - norm.running_mean.double() * scale
