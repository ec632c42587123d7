"""DER++ (Buzzega et al., NeurIPS 2020): dark experience replay.

Each step draws a batch of exemplars beside its new images. Their loss has two terms: the squared distance to the logits
that were stored with them (weight alpha), and the cross-entropy with their labels (weight beta). The logits are kept
beside the exemplars in the memory. The paper draws one batch of exemplars for each term and stores images during
training; here one batch serves both terms, and exemplars are selected after each task.
"""

import torch
from torch.nn import functional

from foster import FitSettings, Method, MethodSettings, Phase, register_method
from foster.losses import cross_entropy


class DarkSettings(MethodSettings):
    summary = "replay exemplars together with the logits that were stored with them"
    paper = "Buzzega et al.: Dark Experience for General Continual Learning. NeurIPS 2020"
    later: FitSettings = FitSettings(epochs=70)
    alpha: float = 0.1
    beta: float = 0.5


@register_method("derpp")
class DarkExperience(Method[DarkSettings]):
    def phases(self, task):
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.remember(task)
        self.keep_logits(task)

    def learn(self, task):
        exemplars = task.exemplars
        if "logits" not in exemplars.beside:  # they come from a bundle, which keeps images alone
            self.memory.keep(logits=self.context.infer(self.network, exemplars.stack).logits)
            exemplars = self.memory.exemplars(task.class_names)
        network = self.grow(task)
        alpha, beta = self.settings.alpha, self.settings.beta

        def objective(batch):
            replay = batch.replay
            logits = network(torch.cat([batch.images, replay.images])).logits  # BatchNorm sees both together
            new, old = logits.split([len(batch.labels), len(replay.labels)])
            stored = replay.beside["logits"]  # NaN for classes that came later
            is_known = stored.isfinite()
            distance = (old[:, : stored.shape[1]] - stored.nan_to_num()).square() * is_known
            return {
                "L_CE": cross_entropy(new, batch.labels),
                "L_DER": alpha * distance.sum() / is_known.sum(),
                "L_replay": beta * cross_entropy(old, replay.labels),
            }

        return Phase("learn", network, objective, self.settings.later, task.new_images, replay=exemplars)

    def keep_logits(self, task):
        """Store the current logits of new exemplars. Old ones keep theirs, with NaN for the new classes."""
        exemplars = self.memory.exemplars(task.class_names)
        logits = self.context.infer(self.network, exemplars.stack).logits.cpu()
        if not task.is_first:
            stored = functional.pad(exemplars.beside["logits"], (0, task.num_new), value=torch.nan)
            logits = torch.where((exemplars.labels < task.num_known)[:, None], stored, logits)
        self.memory.keep(logits=logits)
