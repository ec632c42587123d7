"""Grad-CAM: the evidence for a class by position in the image."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from foster.networks.network import Backbone, Network


def grad_cam(
    network: Network, images: Tensor, class_ids: Tensor, scores: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """The evidence for class `class_ids` `[N]` at each position, `[N, H, W]`, for normalised images `[N, 3, H, W]`.

    The last stage's maps A_k of every branch are weighted by their mean gradients, `relu(sum_k mean(dy/dA_k) A_k)`,
    enlarged to the image and divided by the largest value of the image: 0 to 1, all 0 without evidence for the class.
    `scores` turns features `[N, d]` into the scores `[N, C]` that are explained; the head's logits by default.
    A backbone without maps gives the same value everywhere.
    """
    branches = [cast(Backbone, branch) for branch in network.branches]
    with torch.no_grad():
        stages = [branch.stages(images) for branch in branches]
    with torch.enable_grad():
        maps = [outputs[-1].float().requires_grad_() for outputs in stages]
        seen = [[*outputs[:-1], part] for outputs, part in zip(stages, maps, strict=True)]
        explained = (scores or network.head)(network.features_of(seen)).gather(1, class_ids[:, None])
        gradients = torch.autograd.grad(explained.sum(), maps)
    with torch.no_grad():
        weighted = [
            (gradient.mean((2, 3), keepdim=True) * part).sum(1, keepdim=True)
            for gradient, part in zip(gradients, maps, strict=True)
        ]
        parts = [interpolate(part, images.shape[2:], mode="bilinear", align_corners=False) for part in weighted]
        heat = torch.stack(parts).sum(0)[:, 0].relu()
        return heat / heat.amax((1, 2), keepdim=True).clamp_min(torch.finfo(heat.dtype).tiny)
