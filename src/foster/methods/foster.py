"""FOSTER: feature boosting and compression for class-incremental learning (ECCV 2022)."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

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
)
from foster.methods.base import Method
from foster.networks.boosted import BoostedNetwork, joined
from foster.networks.freezing import freeze
from foster.networks.network import Network
from foster.settings.methods import FosterSettings
from foster.system.streams import both
from foster.training.phase import Evaluate, Phase


class Foster(Method[FosterSettings]):
    """Gradient boosting for new classes: F_t = F_{t-1} + a new branch that is fitted to what F_{t-1} gets wrong.

    Boost: the old network is frozen; the new branch learns from logits scaled against the class imbalance (L_LA),
    from all classes by itself (L_FE), and the joint logits stay near the old ones on the old classes (L_KD).
    Compress: one backbone learns the boosted network's outputs, weighted towards the old classes (L_BKD).
    """

    @property
    def result_name(self) -> str:
        return "compressed" if self.settings.compression else "boosted"

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
            self.remember(task)
            yield Evaluate("boosted", self.network)
            return
        boosted = [self.boosted_network(task, number) for number in range(1, self.settings.boost_branches + 1)]
        for number, network in enumerate(boosted, start=1):
            yield self.boost(task, network, number)
        teacher = self.after_boost(task, boosted)
        yield Evaluate("boosted", teacher)
        if self.settings.compression:
            student = self.student(task, boosted[0])
            yield self.compress(task, teacher, student)
            self.after_compress(task, student)

    def num_branches(self, num_tasks: int) -> int:
        return 1 if self.settings.compression else num_tasks

    def boosted_network(self, task: Task, number: int = 1) -> BoostedNetwork:
        """The old network, frozen, with its new branch; the first of the task, or one more."""
        with self.initialising(task, "network" if number == 1 else f"network {number}"):
            return BoostedNetwork.expand(
                self.network,
                task.num_new,
                new_on_old=self.settings.new_on_old,
                train_old_block=self.settings.train_old_block,
                sums=self.settings.sums,
            )

    def boost(self, task: Task, network: BoostedNetwork, number: int = 1) -> Phase:
        settings, num_known = self.settings, task.num_known
        scales = self.scales(task).to(self.workplace.device)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            out = network(images)
            terms = {"L_LA": logits_alignment(out.logits, labels, scales)}
            if settings.feature_enhancement:
                terms["L_FE"] = feature_enhancement(out.new_branch_logits, labels)
            if settings.distillation:
                known = distillation(out.logits[:, :num_known], out.old_logits, settings.temperature)
                terms["L_KD"] = settings.distillation_weight * known
            return terms

        name = "boost" if number == 1 else f"boost-{number}"
        return Phase(name, network, objective, settings.boost, task.training)

    def after_boost(self, task: Task, boosted: Sequence[BoostedNetwork]) -> BoostedNetwork | Network:
        """The mean of the boosted networks, aligned and asked for exemplars where the settings say so. It is what is
        compressed, or what stays where nothing is."""
        settings = self.settings
        if task.num_new and (settings.alignment == "weights" or settings.align_teacher):
            for network in boosted:
                network.align(task.num_known, self.extra_scale(task))
        teacher = boosted[0] if len(boosted) == 1 else joined(boosted)
        if settings.herding_features == "boosted" or not settings.compression:
            self.remember(task, teacher)
        if not settings.compression:
            self.network = boosted[0].as_network()
        return teacher

    def scales(self, task: Task) -> Tensor:
        """gamma: what each class's logits are multiplied by in L_LA, from the class counts. `[num_total]`"""
        counts, beta = task.class_counts, self.settings.beta_boost_of(task.index)
        if self.settings.alignment != "logits":
            return torch.ones(task.num_total)
        if self.settings.gamma == "paper":
            return logit_scales_of_paper(counts, beta, task.num_known)
        return logit_scales(counts, beta)

    def compress(self, task: Task, teacher: BoostedNetwork | Network, student: Network) -> Phase:
        freeze(teacher)
        loss, mixed_share = self.compression_loss(task), self.settings.compress_cutmix

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            if mixed_share:
                images = cutmix(images, mixed_share)
            teacher_out, student_out = both(teacher, student, images)
            return {"L_BKD": loss(student_out.logits, teacher_out.logits)}

        data = task.training
        if self.workplace.unlabeled is not None:
            data = concatenate(data, self.workplace.unlabeled)
        return Phase("compress", student, objective, self.settings.compress, data, teachers=(teacher,))

    def student(self, task: Task, boosted: BoostedNetwork) -> Network:
        with self.initialising(task, "student"):
            return boosted.compressed()

    def after_compress(self, task: Task, student: Network) -> None:
        """The student is the network from now on, aligned and asked for exemplars where the settings say so."""
        if task.num_new and self.settings.align_student:
            student.align(task.num_known, self.extra_scale(task))
        self.network = student
        if self.settings.herding_features == "compressed":
            self.remember(task)

    def compression_loss(self, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """(student logits, teacher logits) -> loss, as the settings choose it."""
        temperature = self.settings.temperature
        weights = class_weights(task.class_counts, self.settings.beta_compress).to(self.workplace.device)
        table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "balanced": lambda student, teacher: balanced_distillation(student, teacher, weights, temperature),
            "paper": lambda student, teacher: balanced_distillation_of_paper(student, teacher, weights),
            "plain": lambda student, teacher: distillation(student, teacher, temperature),
        }
        return table[self.settings.compress_with]

    def extra_scale(self, task: Task) -> float:
        """base^(known/new), by which aligned rows are multiplied once more; 1 by default."""
        return float(self.settings.align_exponent_base ** (task.num_known / task.num_new))
