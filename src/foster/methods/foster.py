"""FOSTER: feature boosting and compression for class-incremental learning (ECCV 2022)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from foster.data.augmentation.mixing import cutmix
from foster.data.images import concatenate
from foster.data.task import Task
from foster.losses import (
    balanced_distillation,
    balanced_distillation_of_paper,
    class_weights,
    distillation,
    feature_enhancement,
    logit_scales,
    logit_scales_of_paper,
    logits_alignment,
    recalled,
)
from foster.methods.base import Method
from foster.methods.quarter_turns import TurnedNetwork, first_phase, with_turned
from foster.networks.boosted import BoostedNetwork, BoostedOutput, joined
from foster.networks.modules import at_once, both, freeze
from foster.networks.network import Network, Output
from foster.settings.methods import FosterSettings
from foster.training.phase import Evaluate, Phase


class Foster(Method[FosterSettings]):
    """Gradient boosting for new classes: F_t = F_{t-1} + a new branch that is fitted to the residual of F_{t-1}.

    Boost: the old network is frozen. The loss has cross-entropy on logits that are scaled against the class imbalance
    (L_LA), cross-entropy of the new branch alone over all classes (L_FE), and distillation of the old logits (L_KD).
    Compress: a network with one backbone is distilled from the boosted network, with larger weights for classes with
    few images (L_BKD).
    """

    @property
    def result_name(self) -> str:
        return "compressed" if self.settings.compression else "boosted"

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield first_phase(self, task, self.settings.first_turns)
            if self.settings.recall_first:
                self.first = freeze(self.network)
            self.remember(task)
            yield Evaluate("boosted", self.network)
            return
        boosted = [self.boosted_network(task, number) for number in range(1, self.settings.boost_branches + 1)]
        yield from (self.boost(task, network, number) for number, network in enumerate(boosted, start=1))
        teacher = self.after_boost(task, boosted)
        yield Evaluate("boosted", teacher)
        if self.settings.compression:
            with self.initialising(task, "student"):
                student = boosted[0].compressed()
            yield self.compress(task, teacher, student, boosted[0].old)
            self.network = student
            if self.settings.herding_features == "compressed":
                self.remember(task)

    def num_branches(self, num_tasks: int) -> int:
        return 1 if self.settings.compression else num_tasks

    def boosted_network(self, task: Task, number: int = 1) -> BoostedNetwork:
        """The frozen old network with a new branch; `number` counts the boosted networks of the task from 1."""
        with self.initialising(task, numbered("network", number)):
            return BoostedNetwork(
                self.network,
                task.num_new,
                new_on_old=self.settings.new_on_old,
                train_old_block=self.settings.train_old_block,
                sums=self.settings.sums,
            )

    def boost(self, task: Task, network: BoostedNetwork, number: int = 1) -> Phase:
        settings, name = self.settings, numbered("boost", number, "-")
        scales = self.scales(task).to(self.context.device)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return self.boost_terms(network(images), labels, scales)

        if settings.boost_turns == "none":
            return Phase(name, network, objective, settings.boost, task.training)
        old, new_branch = network.old, network.new_branch
        turned = TurnedNetwork.of(self, task, network, new_branch.feature_size, numbered("turns", number))

        def objective_with_turns(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            seen, quarters = with_turned(images)
            old_out, features = at_once([partial(old, images), partial(new_branch, seen)])
            out = network.combined(old_out, features[: len(images)])
            return {**self.boost_terms(out, labels, scales), "L_turn": turned.loss(features, labels, quarters)}

        return Phase(name, turned, objective_with_turns, settings.boost, task.training)

    def boost_terms(self, out: BoostedOutput, labels: Tensor, scales: Tensor) -> dict[str, Tensor]:
        """The loss of boosting, L_LA + L_FE + L_KD, by term."""
        settings, num_known = self.settings, out.old_logits.shape[1]
        terms = {"L_LA": logits_alignment(out.logits, labels, scales)}
        if settings.feature_enhancement:
            terms["L_FE"] = feature_enhancement(out.new_branch_logits, labels)
        if settings.distillation:
            terms["L_KD"] = distillation(out.logits[:, :num_known], out.old_logits, settings.temperature)
        return terms

    def after_boost(self, task: Task, boosted: Sequence[BoostedNetwork]) -> BoostedNetwork | Network:
        """The mean of the boosted networks, aligned if the settings say so. It is the teacher of compression; without
        compression it is the network of the task. Exemplars may be selected by its features."""
        settings = self.settings
        if settings.alignment == "weights":
            for network in boosted:
                network.align(task.num_known)
        teacher = boosted[0] if len(boosted) == 1 else joined(boosted)
        if settings.herding_features == "boosted" or not settings.compression:
            self.remember(task, teacher)
        if not settings.compression:
            self.network = boosted[0].as_network()
        return teacher

    def scales(self, task: Task) -> Tensor:
        """gamma, the scales of the logits in L_LA, computed from the class counts, `[num_total]`."""
        counts, beta = task.class_counts, self.settings.beta_boost_of(task.index)
        if self.settings.alignment != "logits":
            return torch.ones(task.num_total)
        if self.settings.gamma == "paper":
            return logit_scales_of_paper(counts, beta, task.num_known)
        return logit_scales(counts, beta)

    def compress(self, task: Task, teacher: nn.Module, student: Network, old: Network) -> Phase:
        settings, num_known = self.settings, task.num_known
        loss, old_head, old_size = self.compression_loss(task), old.head, old.feature_size
        first = self.first if self.recalls_first(task) else None
        freeze(teacher)

        taught = teacher if first is None else partial(recalling, first, teacher)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            if settings.compress_cutmix:
                images = cutmix(images, settings.compress_cutmix)
            teacher_out, out = both(taught, student, images)
            terms = {"L_BKD": loss(out.logits, teacher_out.logits)}
            if settings.compress_old_weight:
                old_logits = old_head(teacher_out.features[:, :old_size])  # the old network's features come first
                known = distillation(out.logits[:, :num_known], old_logits, settings.temperature)
                terms["L_OLD"] = settings.compress_old_weight * known
            return terms

        unlabeled = self.context.unlabeled
        data = task.training if unlabeled is None else concatenate(task.training, unlabeled)
        teachers = (teacher,) if first is None else (teacher, first)
        return Phase("compress", student, objective, settings.compress, data, teachers=teachers)

    def recalls_first(self, task: Task) -> bool:
        """Whether the first network teaches: it is kept, its classes have no new images, and few classes are new."""
        if self.first is None or not self.settings.has_few_new(task.num_new, task.num_known):
            return False
        return min(task.class_ids) >= self.first.num_classes

    def compression_loss(self, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """(student logits, teacher logits) -> loss, by the setting `compress_with`."""
        temperature = self.settings.temperature
        weights = class_weights(task.class_counts, self.settings.beta_of_compression).to(self.context.device)
        table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "balanced": lambda student, teacher: balanced_distillation(student, teacher, weights, temperature),
            "paper": lambda student, teacher: balanced_distillation_of_paper(student, teacher, weights),
            "plain": lambda student, teacher: distillation(student, teacher, temperature),
        }
        return table[self.settings.compress_with]

    def network_of(self, variant: str, task_sizes: Sequence[int], weights: Mapping[str, Tensor]) -> nn.Module:
        if variant != "boosted":
            return super().network_of(variant, task_sizes, weights)
        network: BoostedNetwork | Network
        if any(name.startswith("new_branch.") for name in weights):
            old = self.new_network(task_sizes[:-1])
            network = BoostedNetwork(old, task_sizes[-1], sums=self.settings.sums)
        else:  # of the first task, or without compression, or the mean of several boosted networks
            network = self.new_network(task_sizes)
            num_branches = len({name.split(".")[1] for name in weights if name.startswith("branches.")})
            for _ in range(len(network.branches), num_branches):
                network = network.with_new_branch(0)
        network.load_state_dict(weights)
        return network


def recalling(first: Network, teacher: nn.Module, images: Tensor) -> Output:
    """The teacher's output, with the probability of the classes of `first` divided among them as `first` does."""
    out, first_out = at_once([partial(teacher, images), partial(first, images)])
    return Output(recalled(out.logits, first_out.logits), out.features)


def numbered(name: str, number: int, between: str = " ") -> str:
    """`name` for number 1, and `name` with the number for others."""
    return name if number == 1 else f"{name}{between}{number}"
