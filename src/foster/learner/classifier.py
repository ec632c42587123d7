"""A trained network as something that answers: pictures in, scores and probabilities of every class out."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from foster.data.augmentation.pipeline import Normaliser
from foster.data.images import Stack
from foster.evaluation.predict import nearest_mean_scores
from foster.networks.network import Network
from foster.networks.trunk import Trunk
from foster.training.distributed import in_shares
from foster.training.engine import Engine, in_batches
from foster.training.memory_errors import explained_memory_errors
from foster.training.views import MAPS_AT_ONCE


class Classifier(nn.Module):
    """Images uint8 `[N, 3, H, W]` to probabilities `[N, num_classes]`, normalisation and calibration inside.

    Scores are the head's logits or, with class means `[C, d]`, the nearness of an image's features to each mean.
    """

    class_means: Tensor | None

    def __init__(
        self,
        network: Network,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        temperature: float = 1.0,
        trunk: Trunk | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.trunk = trunk
        self.temperature = temperature
        self.normaliser = Normaliser(mean, std)
        self.register_buffer("class_means", None)
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.normaliser.factor.device

    def scores_of(self, features: Tensor) -> Tensor:
        """float32 `[N, num_classes]` of features `[N, feature_size]`."""
        if self.class_means is None:
            logits: Tensor = self.network.head(features)
            return logits.float()
        return nearest_mean_scores(features, self.class_means)

    def forward(self, images: Tensor) -> Tensor:
        return self._probabilities(self.scores_of(self._features(images)))

    def all_scores(self, images: Stack | Tensor) -> Tensor:
        """Scores of any number of images from anywhere, on the CPU."""
        return self._in_batches(lambda batch: (self.scores_of(self._features(batch)),), images)[0]

    def features(self, images: Stack | Tensor) -> Tensor:
        """Features `[N, feature_size]` of any number of images from anywhere, on the CPU."""
        return self._in_batches(lambda batch: (self._features(batch),), images)[0]

    @torch.no_grad()
    def scores_on_cpu(self, features: Tensor) -> Tensor:
        """Scores of features from anywhere, on the CPU."""
        return self.scores_of(features.to(self.device)).cpu()

    def probabilities(self, images: Stack | Tensor) -> Tensor:
        """Probabilities of any number of images from anywhere, on the CPU."""
        return self._in_batches(lambda batch: (self.forward(batch),), images)[0]

    def described(self, images: Stack | Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities `[N, num_classes]` and features `[N, feature_size]` in one pass, on the CPU."""

        def describe(batch: Tensor) -> tuple[Tensor, Tensor]:
            features = self._features(batch)
            return self._probabilities(self.scores_of(features)), features

        probabilities, features = self._in_batches(describe, images)
        return probabilities, features

    def _in_batches(
        self, forward: Callable[[Tensor], tuple[Tensor, ...]], images: Stack | Tensor
    ) -> tuple[Tensor, ...]:
        """As `in_batches`, on the CPU in the end."""
        num_images = len(images)
        if not num_images:  # not every module takes a batch of none
            images = torch.zeros(1, *images.shape[1:], dtype=torch.uint8)
        with explained_memory_errors(self.device):
            return tuple(column[:num_images].cpu() for column in in_batches(forward, images, self.device))

    def _probabilities(self, scores: Tensor) -> Tensor:
        return nn.functional.softmax(scores / self.temperature, dim=1)

    def prepared(self, images: Tensor) -> Tensor:
        """What the network sees: normalised images or, behind a trunk, its maps of them."""
        normalised: Tensor = self.normaliser(images, memory_format=torch.contiguous_format)
        return normalised if self.trunk is None else cast(Tensor, self.trunk(normalised))

    def _features(self, images: Tensor) -> Tensor:
        return self.network.features(self.prepared(images)).float()


def scores_of_all(classifier: Classifier, images: Stack | Tensor, engine: Engine) -> Tensor:
    """The classifier's scores of any number of images, on the CPU; what a trunk made of them is not made again."""

    def scores(part: Stack) -> tuple[Tensor]:
        if views is None or not len(part):
            return (classifier.all_scores(part),)
        with torch.no_grad():
            maps = (classifier.network.features(views.plain(some)) for some in part.split(MAPS_AT_ONCE))
            return (torch.cat([classifier.scores_of(features) for features in maps]).cpu(),)

    views = engine.views
    return in_shares(scores, images, torch.device("cpu"))[0]
