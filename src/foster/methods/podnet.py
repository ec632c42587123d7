"""PODNet: pooled outputs distillation for small-tasks incremental learning (ECCV 2020)."""

import math
from collections.abc import Iterator
from functools import reduce
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from foster.data.herding import positions_by_class
from foster.data.images import ImageSet, concatenate
from foster.data.memory import select
from foster.data.task import Task
from foster.losses import local_similarity, pod_flat, pod_spatial, proxy_nca
from foster.methods.cosine import CosineMethod, cosine_head
from foster.networks.heads import CosineHead
from foster.networks.modules import both, freeze
from foster.networks.network import Backbone, Network
from foster.seeding import Address, generator
from foster.settings.fit import FitSettings
from foster.settings.methods import PodnetSettings
from foster.training.phase import Evaluate, Phase

NUM_CLUSTERING_ROUNDS = 20


class Podnet(CosineMethod[PodnetSettings]):
    """Replay with distillation of the pooled maps of every stage.

    A class has several proxies, trained with L_LSC. Proxies of new classes start at the cluster centres of their
    features; those of known classes are fixed. L_spatial compares sums over rows and columns of the maps, L_flat the
    final features, both times sqrt(total / new). Then the whole head, and nothing else, is tuned on the same number of
    images of each class. This changes the accuracy of the head, but not that of nearest means until the next task.
    """

    @property
    def num_proxies(self) -> int:
        return self.settings.num_proxies

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
        else:
            yield self.learn(task)
            if task.exemplars is not None:
                yield self.tune_head(self.balanced(task, task.exemplars))
        self.remember(task)

    def classify(self, name: str, network: Network, schedule: FitSettings, data: ImageSet) -> Phase:
        head = cosine_head(network)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"L_LSC": self.classification(network(images).logits, labels, head)}

        return Phase(name, network, objective, schedule, data)

    def learn(self, task: Task) -> Phase:
        teacher = freeze(self.network)
        network = self.grow(task)
        self.imprint(task, teacher, network)
        head, backbone = cosine_head(network), cast(Backbone, network.branches[0])
        old_backbone = cast(Backbone, teacher.branches[0])
        growth = math.sqrt(task.num_total / task.num_new)
        spatial_weight, flat_weight = growth * self.settings.spatial_weight, growth * self.settings.flat_weight

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            old_maps, maps = both(old_backbone.stages, backbone.stages, images)
            features, old_features = backbone.pool(maps[-1]), old_backbone.pool(old_maps[-1])
            return {
                "L_LSC": self.classification(head(features), labels, head),
                "L_spatial": spatial_weight * pod_spatial(maps, old_maps),
                "L_flat": flat_weight * pod_flat(features, old_features),
            }

        return Phase("learn", network, objective, self.settings.later, task.training, teachers=(teacher,))

    def tune_head(self, balanced: ImageSet) -> Phase:
        freeze(self.network.branches)
        cosine_head(self.network).old_proxies.requires_grad_(True)
        return self.classify("finetune", self.network, self.settings.finetune, balanced)

    def classification(self, logits: Tensor, labels: Tensor, head: CosineHead) -> Tensor:
        if not self.settings.hinge:
            return proxy_nca(logits, labels)
        # The margin is in units of cosines, and logits are cosines times the trained scale. The scale of the margin has
        # no gradient: with one, the loss would decrease by a scale below 0 before anything is learned. Without one, the
        # scale grows from task to task, and with it the loss of images within the margin.
        return local_similarity(logits, labels, self.settings.margin * head.scale.detach())

    @torch.no_grad()
    def imprint(self, task: Task, teacher: Network, network: Network) -> None:
        """Set the proxies of new classes to the cluster centres of their features, with the mean norm of known
        proxies."""
        head = cosine_head(network)
        features = functional.normalize(self.context.infer(teacher, task.new_images.stack).features)
        labels = task.new_images.labels.to(features.device)
        mean_norm = head.old_proxies.norm(dim=2).mean()
        random = generator(Address(self.context.seed, "proxies", task.index))
        members = positions_by_class(labels, range(task.num_known, task.num_total))
        for proxies, positions in zip(head.new_proxies, members, strict=True):
            if len(positions):
                proxies.copy_(functional.normalize(clusters(features[positions], self.num_proxies, random)) * mean_norm)

    def balanced(self, task: Task, exemplars: ImageSet) -> ImageSet:
        """The exemplars, and of each new class as many images as the largest known class has."""
        chosen = select(
            lambda images: self.context.infer(self.network, images).features,
            task.new_images,
            range(task.num_known, task.num_total),
            int(exemplars.class_counts().max()),
            self.context.selection,
            generator(Address(self.context.seed, "balanced", task.index)),
        )
        return reduce(concatenate, [*chosen.values(), exemplars])


def clusters(features: Tensor, count: int, random: torch.Generator) -> Tensor:
    """`count` centres `[count, d]` of `features` `[N, d]` by k-means, starting from random features.

    With fewer features than centres, some centres are equal. A centre without features does not move.
    """
    order = torch.randperm(len(features), generator=random).to(features.device)
    centres = features[order.repeat(-(-count // len(order)))[:count]]
    for _ in range(NUM_CLUSTERING_ROUNDS):
        nearest = torch.cdist(features, centres).argmin(1)
        # A matrix product has a fixed order of summation on a GPU, unlike index_add.
        membership = functional.one_hot(nearest, count).to(features)
        sizes = membership.sum(0)[:, None]
        centres = torch.where(sizes > 0, membership.T @ features / sizes.clamp_min(1), centres)
    return centres
