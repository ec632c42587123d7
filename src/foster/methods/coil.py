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
from foster.networks.freezing import freeze
from foster.networks.heads import precise_linear
from foster.networks.network import Network
from foster.networks.streams import both
from foster.settings.methods import CoilSettings
from foster.training.phase import Evaluate, Phase

NUM_ROUNDS = 200


class Coil(CosineMethod[CoilSettings]):
    """Replay with distillation, and knowledge that optimal transport moves between the classifiers of similar classes.

    Prospective: the new classes' classifiers start as known ones, carried over by the plan; L_PT keeps them near for
    the first epoch. Retrospective: the new classifiers, carried back, must tell known classes apart as the old
    network does (L_RT, which gains weight as they learn). l L_KD + (1 - l) L_CE with l = known / total is the base.
    The plan is made once a task, from class centres in the old network's features: new images and exemplars alone.
    Both transports distil between cosine heads of one scale sigma; the authors' code leaves sigma out of the carried
    side, whose softmax is then almost flat. Its results are those of the nearest class mean, and so are ours.
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
        prospect = carried(plan, known_classifiers)
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
            retrospect = carried(plan.T, head.new_proxies.squeeze(1))
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
        """How much of each known class goes to each new one, `[num_known, num_new]`; near centres exchange more."""
        classifiers = cosine_head(network).proxies.detach().squeeze(1)
        features = self.context.infer(network, task.training.stack).features
        centres = class_means(features, task.training.labels, task.num_total)
        # A known class without exemplars has no centre; its classifier points to where its features were.
        known = torch.where(
            centres[: task.num_known].isfinite(), centres[: task.num_known], functional.normalize(classifiers)
        )
        cost = torch.cdist(known, centres[task.num_known :], p=self.settings.norm)
        return sinkhorn(cost, self.settings.sinkhorn)


@torch.no_grad()
def sinkhorn(cost: Tensor, entropy: float, num_rounds: int = NUM_ROUNDS) -> Tensor:
    """The plan P `[n, m]` that minimises `sum(P * cost) + entropy * sum(P log P)`; rows sum to 1/n, columns to 1/m.

    Every class is equally heavy on its side. The columns' sums are exact, the rows' as far as the rounds have come.

    Python Optimal Transport (`ot.sinkhorn`) is not a dependency: these few lines are all that we would use of it. Ours
    run on the device that holds the features, in the log domain where no kernel underflows, and for a fixed number of
    rounds; POT tests for convergence every few rounds, and each test makes the host wait for the device.
    """
    num_rows, num_columns = cost.shape
    kernel = -cost.double() / entropy
    columns = kernel.new_zeros(num_columns)
    for _ in range(num_rounds):
        rows = -math.log(num_rows) - torch.logsumexp(kernel + columns, dim=1)
        columns = -math.log(num_columns) - torch.logsumexp(kernel + rows[:, None], dim=0)
    return (kernel + rows[:, None] + columns).exp().to(cost.dtype)


def carried(plan: Tensor, classifiers: Tensor) -> Tensor:
    """Classifiers `[m, d]` of the plan's columns, from those of its rows `[n, d]`; the transposed plan leads back.

    Each is the mean of the rows' directions, weighted by what the plan `[n, m]` moves between the two classes.
    """
    return plan.shape[1] * precise_linear(plan.T, functional.normalize(classifiers, dim=1).T)
