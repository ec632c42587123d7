"""BiC: bias correction, large scale incremental learning (CVPR 2019)."""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from foster.data.herding import positions_by_class, random_selection
from foster.data.images import ImageSet
from foster.data.task import Task
from foster.losses import cross_entropy, distillation
from foster.methods.base import Method
from foster.networks.heads import Head
from foster.networks.modules import freeze
from foster.networks.network import Network
from foster.seeding import Address, generator
from foster.settings.methods import BicSettings
from foster.training.phase import Evaluate, Phase


class Correction(nn.Module):
    """The correction alpha z + beta of one task's logits. It starts with alpha 1 and beta 0, frozen."""

    def __init__(self) -> None:
        super().__init__()
        # Vectors of one element: multiplied by a scalar tensor, bfloat16 logits would stay bfloat16.
        self.alpha = nn.Parameter(torch.ones(1), requires_grad=False)
        self.beta = nn.Parameter(torch.zeros(1), requires_grad=False)


class BiasCorrectedHead(Head):
    """A linear head with a correction for each task: alpha_t z_c + beta_t for every class c of task t."""

    def __init__(self, in_features: int, task_sizes: Sequence[int]) -> None:
        super().__init__(in_features, sum(task_sizes))
        self.task_sizes = tuple(task_sizes)
        self.corrections = nn.ModuleList(Correction() for _ in task_sizes)

    @property
    def newest(self) -> Correction:
        """The correction of the last task."""
        return cast(Correction, self.corrections[-1])

    @property
    def alpha(self) -> Tensor:
        """The factor of each class's logit, `[num_classes]`."""
        return self._for_each_class("alpha")

    @property
    def beta(self) -> Tensor:
        """The offset of each class's logit, `[num_classes]`."""
        return self._for_each_class("beta")

    def _for_each_class(self, name: str) -> Tensor:
        parts = zip(self.corrections, self.task_sizes, strict=True)
        return torch.cat([correction.get_parameter(name).expand(size) for correction, size in parts])

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.alpha + self.beta

    def grown(self, num_new: int, in_features: int | None = None) -> "BiasCorrectedHead":
        """As `Head.grown`, with the identity as the correction of the new task."""
        plain = super().grown(num_new, in_features)
        head = BiasCorrectedHead(plain.in_features, (*self.task_sizes, num_new)).to(plain.weight)
        head.weight, head.bias = plain.weight, plain.bias
        for known, copied in zip(self.corrections, head.corrections, strict=False):
            copied.load_state_dict(known.state_dict())
        return head


class BiasCorrection(Method[BicSettings]):
    """Replay with distillation, followed by a correction of the bias towards new classes, fitted on held-out images.

    Learn: l L_KD + (1 - l) L_CE with l = known / total, on all images but a small balanced validation part.
    Correct: the network is frozen, BatchNorm included. Cross-entropy on the validation part fits alpha and beta of the
    new classes' logits, alpha z + beta. Corrections of earlier tasks are kept, in the network and in its teacher.
    Exemplars are selected from all images. If no old or no new class can spare an image, nothing is corrected.
    """

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        if task.is_first:
            yield self.learn_first(task)
        else:
            training, validation = self.split(task)
            yield self.learn(task, training)
            if len(validation):
                yield self.correct(validation)
        self.remember(task)

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> BiasCorrectedHead:
        return BiasCorrectedHead(in_features, task_sizes)

    def learn(self, task: Task, data: ImageSet) -> Phase:
        temperature, num_known = self.settings.temperature, task.num_known
        share = task.num_known / task.num_total

        def loss(logits: Tensor, old_logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            known = distillation(logits[:, :num_known], old_logits, temperature)
            return {"L_KD": share * known, "L_CE": (1 - share) * cross_entropy(logits, labels)}

        return self.learn_with_teacher(task, loss, self.settings.later, data)

    def trained_again(self) -> Network:
        """All parameters but the corrections, which need balanced images as in `correct`."""
        network = super().trained_again()
        assert isinstance(network.head, BiasCorrectedHead)
        freeze(network.head.corrections)
        return network

    def correct(self, validation: ImageSet) -> Phase:
        network = freeze(self.network)
        head = network.head
        assert isinstance(head, BiasCorrectedHead)
        head.newest.requires_grad_(True)
        return self.classify("correct", network, self.settings.correction, validation)

    def split(self, task: Task) -> tuple[ImageSet, ImageSet]:
        """Divide the task's images at random, for training and validation, which has `num_held_out` of each class."""
        images, random = task.training, generator(Address(self.context.seed, "bias validation", task.index))
        is_held_out = torch.zeros(len(images), dtype=torch.bool, device=images.labels.device)
        members = positions_by_class(images.labels, range(task.num_total))
        for positions, count in zip(members, self.num_held_out(task).tolist(), strict=True):
            chosen = random_selection(len(positions), count, random)
            is_held_out[positions[chosen.to(positions.device)]] = True
        return images.select(~is_held_out), images.select(is_held_out)

    def num_held_out(self, task: Task) -> Tensor:
        """The number of validation images of each class, int64 `[num_total]`.

        `validation_share` of the exemplars is divided among the known classes; each new class has as many. It is at
        least one, but every class keeps at least one image for training.
        """
        num_exemplars = 0 if task.exemplars is None else len(task.exemplars)
        wanted = max(1, int(self.settings.validation_share * num_exemplars / task.num_known))
        spared = (task.class_counts - 1).clamp(0, wanted)
        # With images of only old or only new classes, the correction would favour these.
        has_both_sides = bool(spared[: task.num_known].any()) and bool(spared[task.num_known :].any())
        return spared if has_both_sides else torch.zeros_like(spared)
