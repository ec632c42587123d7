"""COIL: co-transport for class-incremental learning (ACM MM 2021)."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from foster.data.task import Task
from foster.evaluation.predict import class_means
from foster.losses import cross_entropy, distillation, prospective_transport, retrospective_transport
from foster.methods.cosine import CosineMethod, cosine_head
from foster.networks.heads import precise_linear
from foster.networks.modules import both, freeze
from foster.networks.network import Network
from foster.settings.methods import CoilSettings
from foster.training.phase import Evaluate, Phase

NUM_ROUNDS = 200


class Coil(CosineMethod[CoilSettings]):
    """Replay with distillation, and optimal transport between the classifiers of similar known and new classes.

    Prospective: the classifiers of new classes start as known classifiers, transported by the plan; L_PT keeps them
    close in the first epoch. Retrospective: the new classifiers, transported back, must classify known classes as the
    old network does (L_RT, with a weight that grows during training). The base loss is l L_KD + (1 - l) L_CE with l =
    known / total. The plan is computed once a task, from class centres in the old network's features of new images and
    exemplars. Both transports distil between cosine heads of the same scale sigma. The authors' code omits sigma for
    the transported classifiers, whose softmax is then almost uniform. The result is by the nearest class mean, as in
    the authors' code.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        yield self.learn_first(task) if task.is_first else self.learn(task)
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        settings, num_known, temperature = self.settings, task.num_known, self.settings.temperature
        share = task.num_known / task.num_total
        teacher = freeze(self.network)
        plan = self.plan(task, teacher)
        network = self.grow(task)
        head = cosine_head(network)
        head.old_proxies.requires_grad_(True)
        known_classifiers = head.old_proxies.detach().squeeze(1)
        prospect = transported(plan, known_classifiers)
        prospect *= known_classifiers.norm(dim=1).mean() / prospect.norm(dim=1).mean()
        with torch.no_grad():
            head.new_proxies.copy_(prospect[:, None])
        prospective_weight, retrospective_weight = torch.zeros(2, device=self.context.device)

        def on_epoch(epoch: int) -> None:
            progress = epoch / settings.later.epochs
            prospective_weight.fill_(settings.transport_weight if epoch == 0 else 0.0)
            retrospective_weight.fill_(settings.transport_weight * progress**2)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            old, new = both(teacher, network, images)
            retrospect = transported(plan.T, head.new_proxies.squeeze(1))
            prospective = prospective_transport(
                new.logits[:, num_known:], new.features, prospect, head.scale, temperature
            )
            retrospective = retrospective_transport(new.features, retrospect, head.scale, old.logits, temperature)
            return {
                "L_KD": share * distillation(new.logits[:, :num_known], old.logits, temperature),
                "L_CE": (1 - share) * cross_entropy(new.logits, labels),
                "L_PT": prospective_weight * prospective,
                "L_RT": retrospective_weight * retrospective,
            }

        return Phase("learn", network, objective, settings.later, task.training, (teacher,), on_epoch)

    def plan(self, task: Task, network: Network) -> Tensor:
        """The transport plan between known and new classes, `[num_known, num_new]`, larger for closer centres."""
        classifiers = cosine_head(network).proxies.detach().squeeze(1)
        features = self.context.infer(network, task.training.stack).features
        centres = class_means(features, task.training.labels, task.num_total)
        # A known class without exemplars has no centre; the direction of its classifier is used instead.
        known = torch.where(
            centres[: task.num_known].isfinite(), centres[: task.num_known], functional.normalize(classifiers)
        )
        cost = torch.cdist(known, centres[task.num_known :], p=self.settings.norm)
        return sinkhorn(cost, self.settings.sinkhorn)


@torch.no_grad()
def sinkhorn(cost: Tensor, entropy: float, num_rounds: int = NUM_ROUNDS) -> Tensor:
    """The plan P `[n, m]` that minimises `sum(P * cost) + entropy * sum(P log P)`; rows sum to 1/n, columns to 1/m.

    The sums of columns are exact, those of rows are as exact as the number of rounds allows. The iteration is in the
    log domain, where nothing underflows. The number of rounds is fixed, so that the host does not wait for the device;
    `ot.sinkhorn` of Python Optimal Transport tests for convergence and waits.
    """
    num_rows, num_columns = cost.shape
    kernel = -cost.double() / entropy
    columns = kernel.new_zeros(num_columns)
    for _ in range(num_rounds):
        rows = -math.log(num_rows) - torch.logsumexp(kernel + columns, dim=1)
        columns = -math.log(num_columns) - torch.logsumexp(kernel + rows[:, None], dim=0)
    return (kernel + rows[:, None] + columns).exp().to(cost.dtype)


def transported(plan: Tensor, classifiers: Tensor) -> Tensor:
    """Transport classifiers `[n, d]` of the rows of the plan `[n, m]` to classifiers `[m, d]` of its columns. The
    transposed plan transports back.

    Each result is the mean of the normalised row classifiers, weighted by the plan.
    """
    return plan.shape[1] * precise_linear(plan.T, functional.normalize(classifiers, dim=1).T)
