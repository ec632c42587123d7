"""A network for inference: from images to scores and probabilities of every class."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from foster.bundle.manifest import Preprocessing
from foster.data.images import Stack, as_stack
from foster.evaluation.predict import nearest_mean_scores
from foster.learner.calibration import probabilities
from foster.networks.efficientnet_lite import folded
from foster.networks.heads import RootHead
from foster.networks.modules import Normaliser, channels_last
from foster.networks.network import Network
from foster.networks.statistics import unit_roots
from foster.training.engine import in_batches, inference_batch_size
from foster.training.memory_errors import explained_memory_errors

_NUM_THREADS = threading.RLock()
"""Held while torch's number of threads is changed, because that number belongs to the whole process."""


@contextmanager
def one_thread() -> Iterator[int]:
    """Use one thread in each operation on a CPU; yields the usual number of threads.

    Rounding depends on the number of threads, so results that must be the same in every run are computed by one.
    """
    with _NUM_THREADS:
        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield num_threads
        finally:
            torch.set_num_threads(num_threads)


class Classifier(nn.Module):
    """From images, uint8 `[N, 3, H, W]`, to probabilities `[N, num_classes]`, with normalisation and calibration.

    Scores are the head's logits or, with class means `[C, d]`, the nearness of an image's features to each mean.
    """

    class_means: Tensor | None

    def __init__(self, network: Network, preprocessing: Preprocessing, temperature: float = 1.0) -> None:
        super().__init__()
        # One layout everywhere, since layouts round differently; on a CPU this one takes three quarters of the time.
        self.network = channels_last(network)
        self.temperature = temperature
        self.image_size = preprocessing.size
        self.normaliser = Normaliser(preprocessing.mean, preprocessing.std)
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
        """For export and for gradients: the network itself, not the one for inference."""
        features = self.network.features(self.prepared(images)).float()
        return probabilities(self.scores_of(features), self.temperature)

    def all_scores(self, images: Stack | Tensor) -> Tensor:
        """Scores of any number of images on any device, returned on the CPU."""
        return self._in_batches(lambda batch: (self.scores_of(self._features(batch)),), images)[0]

    def features(self, images: Stack | Tensor) -> Tensor:
        """Features `[N, feature_size]` of any number of images on any device, returned on the CPU.

        Statistics are computed from them, so they must not depend on the number of threads.
        """
        return self._in_batches(lambda batch: (self._features(batch),), images, is_reproducible=True)[0]

    @torch.no_grad()
    def scores_on_cpu(self, features: Tensor) -> Tensor:
        """Scores of features on any device, returned on the CPU."""
        return self.scores_of(features.to(self.device)).cpu()

    def probabilities(self, images: Stack | Tensor) -> Tensor:
        """Probabilities of any number of images on any device, returned on the CPU."""
        return self.described(images)[0]

    def described(self, images: Stack | Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities `[N, num_classes]` and features `[N, feature_size]`, as the head sees them, in one pass, on the
        CPU."""

        def describe(batch: Tensor) -> tuple[Tensor, Tensor]:
            features = self._features(batch)
            seen = unit_roots(features) if isinstance(self.network.head, RootHead) else features
            return probabilities(self.scores_of(features), self.temperature), seen

        probability, features = self._in_batches(describe, images)
        return probability, features

    def _in_batches(
        self, forward: Callable[[Tensor], tuple[Tensor, ...]], images: Stack | Tensor, is_reproducible: bool = False
    ) -> tuple[Tensor, ...]:
        """`forward` over images in batches, without gradients; the results are on the CPU.

        A CPU computes several batches at a time, each by one thread: on a busy machine that takes a third of the
        processor time of several threads in each batch. One batch alone is computed by all threads, unless the result
        must be reproducible.
        """
        num_images = len(images)
        if not num_images:  # not every module takes a batch of none
            images = torch.zeros(1, *images.shape[1:], dtype=torch.uint8)
        stack = as_stack(images)
        size = inference_batch_size((stack.shape[2], stack.shape[3]), self.device)

        def compute(batch: Stack) -> tuple[Tensor, ...]:
            return forward(batch.on_device(self.device))

        with explained_memory_errors(self.device):
            if self.device.type != "cpu" or not (is_reproducible or num_images > size):
                return tuple(column[:num_images].cpu() for column in in_batches(compute, stack, self.device))
            stack.load()
            with (
                one_thread() as num_threads,
                ThreadPoolExecutor(num_threads, "batch", torch.set_num_threads, (1,)) as pool,
            ):
                parts = list(pool.map(torch.no_grad()(compute), stack.split(size)))
            return tuple(torch.cat(column)[:num_images] for column in zip(*parts, strict=True))

    def prepared(self, images: Tensor) -> Tensor:
        """The input of the network: normalised images."""
        normalised: Tensor = self.normaliser(images)
        return normalised

    @cached_property
    def _on_cpu(self) -> Network:
        """The network for inference on a CPU. It is no part of this module, so it is neither exported nor moved."""
        return folded(self.network)

    def _features(self, images: Tensor) -> Tensor:
        network = self._on_cpu if images.device.type == "cpu" else self.network
        return network.features(self.prepared(images)).float()
