"""FeTrIL (Petit et al., WACV 2023): feature translation, without exemplars.

The backbone is trained in the first task and then frozen. A buffer of it keeps the mean feature of each class. Features
of known classes are made by moving those of new images: f + mean(known class) - mean(class of f). The head is trained
on both. For each known class, the paper moves images of the most similar new class; here all new classes.
"""

import torch

from foster import FitSettings, Method, MethodSettings, Phase, freeze, register_method
from foster.losses import cross_entropy


class FetrilSettings(MethodSettings):
    summary = "freeze the backbone after the first task; train the head on translated features of new images"
    paper = "Petit et al.: FeTrIL: Feature Translation for Exemplar-Free Class-Incremental Learning. WACV 2023"
    uses_memory = False
    later: FitSettings = FitSettings(epochs=50, learning_rate=0.1)


@register_method("fetril")
class FeatureTranslation(Method[FetrilSettings]):
    def phases(self, task):
        if task.is_first:
            yield self.learn_first(task)
            self.network.branches[0].means = self.means(task)
        else:
            yield self.learn(task)

    def new_network(self, task_sizes):
        network = super().new_network(task_sizes)
        means = torch.zeros(sum(task_sizes), network.feature_size, device=self.context.device)
        network.branches[0].register_buffer("means", means)
        return network

    def means(self, task):
        """The mean feature of each new class, `[num_new, feature_size]`."""
        features = self.context.infer(self.network, task.new_images.stack).features
        labels = task.new_images.labels.to(features.device)
        return torch.stack([features[labels == k].mean(0) for k in range(task.num_known, task.num_total)])

    def learn(self, task):
        network = self.grow(task)
        backbone, num_known = freeze(network.branches[0]), task.num_known
        means = backbone.means = torch.cat([backbone.means, self.means(task)])

        def objective(images, labels):
            features = network.features(images)
            known = torch.randint(num_known, labels.shape, device=labels.device)
            moved = features - means[labels] + means[known]
            logits = network.head(torch.cat([features, moved]))
            return {"L_CE": cross_entropy(logits, torch.cat([labels, known]))}

        return Phase("learn", network, objective, self.settings.later, task.new_images)
