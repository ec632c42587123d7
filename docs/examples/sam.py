"""Replay with SAM (Foret et al., ICLR 2021): sharpness-aware minimisation.

The loss is computed at the weights w + rho g / |g|, where g is the gradient at w. This is about the highest loss within
the distance rho of w.
"""

import torch
from torch.func import functional_call

from foster import FitSettings, Method, MethodSettings, Phase, gradients, register_method
from foster.losses import cross_entropy


class SamSettings(MethodSettings):
    summary = "replay that minimises the highest loss near the weights"
    paper = "Foret et al.: Sharpness-Aware Minimization for Efficiently Improving Generalization. ICLR 2021"
    first: FitSettings = FitSettings(epochs=100)
    later: FitSettings = FitSettings(epochs=70)
    rho: float = 0.05


@register_method("sam")
class SharpnessAware(Method[SamSettings]):
    def phases(self, task):
        network = self.grow(task)
        schedule = self.settings.first if task.is_first else self.settings.later
        yield Phase("learn", network, self.objective(network), schedule, task.training)
        self.remember(task)

    def objective(self, network):
        rho = self.settings.rho

        def objective(images, labels):
            weights = dict(network.named_parameters())
            slopes = gradients(cross_entropy(network(images).logits, labels), weights.values())
            length = torch.stack([slope.norm() for slope in slopes]).norm()
            uphill = {
                name: weight + rho / (length + 1e-12) * slope
                for (name, weight), slope in zip(weights.items(), slopes, strict=True)
            }
            # BatchNorm's running statistics count each image once: the second pass updates copies.
            statistics = {name: buffer.clone() for name, buffer in network.named_buffers()}
            out = functional_call(network, {**uphill, **statistics}, (images,))
            return {"L_SAM": cross_entropy(out.logits, labels)}

        return objective
