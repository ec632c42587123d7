"""BiC: bias correction, large scale incremental learning (CVPR 2019)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foster.data.herding import positions_by_class, random_selection
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.methods.distilling import learn_with_teacher
from foster.networks.bias import BiasCorrectedHead
from foster.networks.freezing import freeze
from foster.networks.network import Network
from foster.seeding import Address, generator
from foster.settings.methods import BicSettings
from foster.training.phase import Evaluate, Phase


class Parts(NamedTuple):
    """The training images of a task in two parts: for the network, and for the correction of its bias."""

    training: ImageSet
    validation: ImageSet


class BiasCorrection(Method[BicSettings]):
    """Replay with distillation, whose bias to the new classes is then measured on held-out images and taken out.

    Learn: l L_KD + (1 - l) L_CE with l = known / total, without a small balanced validation part of the images.
    Correct: the network is frozen, BatchNorm included; cross-entropy on the validation part fits alpha and beta of the
    new classes' logits, alpha z + beta. Corrections of earlier tasks stay, in the network and in its teacher.
    Exemplars are chosen from all images. Where old or new classes cannot spare an image, nothing is corrected.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
        else:
            parts = self.split(task)
            yield self.learn(task, parts.training)
            if len(parts.validation):
                yield self.correct(parts.validation)
        self.remember(task)

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> BiasCorrectedHead:
        return BiasCorrectedHead(in_features, task_sizes)

    def learn(self, task: Task, data: ImageSet) -> Phase:
        temperature, num_known = self.settings.temperature, task.num_known
        share = task.num_known / task.num_total

        def loss(logits: Tensor, old_logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            known = distillation(logits[:, :num_known], old_logits, temperature)
            return {"L_KD": share * known, "L_CE": (1 - share) * cross_entropy(logits, labels)}

        return learn_with_teacher(self, task, loss, self.settings.later, data)

    def trained_again(self) -> Network:
        """All but the corrections: only images as balanced as those of `correct` may move them."""
        network = super().trained_again()
        assert isinstance(network.head, BiasCorrectedHead)
        freeze(network.head.corrections)
        return network

    def correct(self, validation: ImageSet) -> Phase:
        network = freeze(self.network)
        head = network.head
        assert isinstance(head, BiasCorrectedHead)
        head.newest.requires_grad_(True)

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"L_CE": cross_entropy(network(images).logits, labels)}

        return Phase("correct", network, objective, self.settings.correction, validation)

    def split(self, task: Task) -> Parts:
        """The task's images at random in two parts, the validation part with `num_held_out` of each class."""
        images, random = task.training, generator(Address(self.context.seed, "bias validation", task.index))
        is_held_out = torch.zeros(len(images), dtype=torch.bool, device=images.labels.device)
        members = positions_by_class(images.labels, range(task.num_total))
        for positions, count in zip(members, self.num_held_out(task).tolist(), strict=True):
            chosen = random_selection(len(positions), count, random)
            is_held_out[positions[chosen.to(positions.device)]] = True
        return Parts(images.select(~is_held_out), images.select(is_held_out))

    def num_held_out(self, task: Task) -> Tensor:
        """How many images of each class the correction gets, int64 `[num_total]`.

        `validation_share` of the exemplars, divided by the known classes, and as many of each new class; at least one,
        but always one less than a class has.
        """
        num_exemplars = 0 if task.exemplars is None else len(task.exemplars)
        wanted = max(1, int(self.settings.validation_share * num_exemplars / task.num_known))
        spared = (task.class_counts - 1).clamp(0, wanted)
        # Images of one side alone would pull every prediction to that side.
        has_both_sides = bool(spared[: task.num_known].any()) and bool(spared[task.num_known :].any())
        return spared if has_both_sides else torch.zeros_like(spared)
