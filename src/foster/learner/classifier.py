"""A trained network as something that answers: pictures in, scores and probabilities of every class out."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from foster.data.herding import unit_length
from foster.data.images import ImageSet
from foster.evaluation.predict import batched, class_means
from foster.networks.network import Network
from foster.networks.trunk import Trunk
from foster.training.engine import exact_convolutions, inference_batch_size
from foster.training.memory_errors import explained_memory_errors


class Classifier(nn.Module):
    """Images uint8 `[N, 3, H, W]` to probabilities `[N, num_classes]`, normalisation and calibration inside.

    Scores are the head's logits or, with class means, the nearness of an image's features to each mean.
    """

    mean: Tensor
    std: Tensor
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
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self.register_buffer("class_means", None)
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.mean.device

    def use_means_of(self, exemplars: ImageSet, num_classes: int) -> None:
        """From now on classify by the nearest mean of these exemplars' features."""
        features = self._batched(self._features, exemplars.images)
        self.class_means = class_means(features, exemplars.labels, num_classes).to(self.device)

    def scores(self, images: Tensor) -> Tensor:
        """float32 `[N, num_classes]` for a batch on this classifier's device."""
        return self.scores_of(self._features(images))

    def scores_of(self, features: Tensor) -> Tensor:
        """float32 `[N, num_classes]` of features `[N, feature_size]`."""
        if self.class_means is None:
            logits: Tensor = self.network.head(features)
            return logits.float()
        nearness = unit_length(features)[:, None] - self.class_means[None]
        return -nearness.square().sum(-1)

    def forward(self, images: Tensor) -> Tensor:
        return self._probabilities(self.scores(images))

    def all_scores(self, images: Tensor) -> Tensor:
        """Scores of any number of images from anywhere, on the CPU."""
        return self._batched(self.scores, images)

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of any number of images from anywhere, on the CPU."""
        return self._batched(self.forward, images)

    def described(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities `[N, num_classes]` and features `[N, feature_size]` in one pass, on the CPU."""

        def both(batch: Tensor) -> Tensor:
            features = self._features(batch)
            return torch.cat([self._probabilities(self.scores_of(features)), features], dim=1)

        found = self._batched(both, images)
        num_classes = found.shape[1] - self.network.feature_size
        return found[:, :num_classes], found[:, num_classes:]

    def _batched(self, forward: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """In full precision on every device: an answer does not depend on where it was computed."""
        if not len(images):  # not every module takes a batch of none
            return self._batched(forward, images.new_zeros(1, *images.shape[1:]))[:0]
        batch_size = inference_batch_size((images.shape[2], images.shape[3]))
        with explained_memory_errors(self.device), exact_convolutions():
            return batched(forward, images, batch_size, self.device)

    def _probabilities(self, scores: Tensor) -> Tensor:
        return nn.functional.softmax(scores / self.temperature, dim=1)

    def prepared(self, images: Tensor) -> Tensor:
        """What the network sees: normalised images or, behind a trunk, its maps of them."""
        normalised = (images.float() / 255 - self.mean) / self.std
        return normalised if self.trunk is None else self.trunk(normalised)

    def _features(self, images: Tensor) -> Tensor:
        return self.network.features(self.prepared(images)).float()
