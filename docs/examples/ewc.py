"""EWC (Kirkpatrick et al., PNAS 2017): elastic weight consolidation, without exemplars.

L = L_CE + strength / 2 sum_i F_i (w_i - w*_i)^2. Two buffers of the backbone keep w*, its weights after the last task,
and F, the diagonal of the Fisher information, summed over tasks (the online form; the paper has a term for each task).
"""

import torch

from foster import FitSettings, Method, MethodSettings, Phase, register_method
from foster.losses import cross_entropy, new_class_cross_entropy
from foster.networks.modules import evaluating


class EwcSettings(MethodSettings):
    summary = "penalise changes of weights by their importance for earlier tasks"
    paper = "Kirkpatrick et al.: Overcoming catastrophic forgetting in neural networks. PNAS 2017"
    uses_memory = False
    later: FitSettings = FitSettings(epochs=80)
    strength: float = 1000.0
    most_importance: float = 1e-4  # larger values make training diverge at this learning rate


@register_method("ewc")
class Ewc(Method[EwcSettings]):
    def phases(self, task):
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.measure(task)

    def new_network(self, task_sizes):
        network = super().new_network(task_sizes)
        for name in ("weights_before", "importance"):
            network.branches[0].register_buffer(name, torch.zeros_like(flat(network.branches[0].parameters())))
        return network

    def learn(self, task):
        network = self.grow(task)
        backbone, strength, num_known = network.branches[0], self.settings.strength, task.num_known

        def objective(images, labels):
            moved = flat(backbone.parameters()) - backbone.weights_before
            return {
                "L_CE": new_class_cross_entropy(network(images).logits, labels, num_known),
                "L_EWC": strength / 2 * (backbone.importance * moved.square()).sum(),
            }

        return Phase("learn", network, objective, self.settings.later, task.new_images)

    def measure(self, task):
        """F is the mean over images of the squared gradient, estimated from gradients of batches: near the optimum the
        gradients of n images are independent with mean 0, so the square of their mean is F / n."""
        backbone = self.network.branches[0]
        importance = torch.zeros_like(backbone.importance)
        with evaluating(self.network):
            for images, labels in self.batches(task.new_images, 16):
                loss = cross_entropy(self.network(images).logits, labels)
                gradient = flat(torch.autograd.grad(loss, list(backbone.parameters())))
                importance += gradient.square() * len(labels) ** 2 / len(task.new_images)
        backbone.importance += importance.clamp(max=self.settings.most_importance)
        backbone.weights_before = flat(backbone.parameters()).detach().clone()


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])
