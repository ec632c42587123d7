"""Features of photos that nobody has learned yet: by a bundle, or by a pretrained backbone as it comes."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from foster.data.augmentation.pipeline import Normaliser
from foster.data.photos.resize import Resizing
from foster.learner.learner import Learner
from foster.networks.adapted import choose_backbone
from foster.networks.pretrained import PACKAGES, is_installed
from foster.settings.learner_defaults import backbone_for
from foster.training.engine import find_device, in_batches

SIDE = 160
"""Of the images that a pretrained backbone sees: enough to tell which photo stands out, and cheap."""


class Describer(NamedTuple):
    """From images uint8 `[N, 3, H, W]` of one size to probabilities `[N, C]`, C = 0 without classes, and features."""

    resizing: Resizing
    described: Callable[[Tensor], tuple[Tensor, Tensor]]


def describer_for(learner: Learner | None, device: str) -> tuple[Describer | None, list[str]]:
    """The bundle's network, else the pretrained backbone; None, and a line that says why, where there is neither."""
    if learner is not None:
        return Describer(learner.resizing, learner.classifier().described), []
    name = backbone_for((SIDE, SIDE))
    if not is_installed(name):
        return None, [f"labels were not judged: that takes a bundle, or pip install {PACKAGES[name].name}"]
    resizing, used_device = Resizing(SIDE, SIDE, "crop"), find_device(device)
    choice = choose_backbone(name, resizing.size)
    assert choice.mean is not None
    assert choice.std is not None
    normaliser = Normaliser(choice.mean, choice.std, used_device)
    backbone = choice.make_whole().to(used_device).eval()

    def described(images: Tensor) -> tuple[Tensor, Tensor]:
        (features,) = in_batches(lambda batch: (backbone(normaliser(batch)).float(),), images, used_device)
        return torch.empty(len(images), 0), features.cpu()

    return Describer(resizing, described), []
