"""DER++ (Buzzega et al., NeurIPS 2020): dark experience replay.

Each step draws exemplars beside its new images. For them, the network must still give the logits that it gave when they
were stored (weight alpha), and their labels (weight beta). The logits are kept beside the exemplars in the memory. The
paper draws a batch of exemplars for each of the two terms, and stores images while it trains; here one batch serves
both, and exemplars are chosen after each task.
"""

import torch
from torch.nn import functional

from foster import FitSettings, Method, MethodSettings, Phase, register_method
from foster.losses import cross_entropy


class DarkSettings(MethodSettings):
    summary = "replay exemplars with the logits that the network once gave them"
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

        return Phase("learn", network, objective, self.settings.later, task.new_images, replay=task.exemplars)

    def keep_logits(self, task):
        """New exemplars get the logits of now. Those of old ones stay, without any for the new classes."""
        exemplars = self.memory.exemplars(task.class_names)
        logits = self.context.infer(self.network, exemplars.stack).logits.cpu()
        if not task.is_first:
            stored = functional.pad(exemplars.beside["logits"], (0, task.num_new), value=torch.nan)
            logits = torch.where((exemplars.labels < task.num_known)[:, None], stored, logits)
        self.memory.keep(logits=logits)
