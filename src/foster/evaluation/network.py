"""How well a network tells all classes seen apart: by its head, and by the nearest mean of exemplars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack
from foster.evaluation.metrics import Evaluation, evaluate
from foster.evaluation.predict import class_means, nearest_mean_scores, ranks
from foster.networks.network import Output

Infer = Callable[[nn.Module, Stack], Output]
"""Runs a network in eval mode over uint8 images `[N, 3, H, W]`, without gradients."""


@dataclass(frozen=True)
class Nothing:
    """An inference for rehearsals that looks at one image, to learn all sizes: logits and features are zero."""

    of_one: Callable[[nn.Module], Output]

    @torch.no_grad()
    def __call__(self, network: nn.Module, images: Stack) -> Output:
        out = self.of_one(network)
        logits, features = (torch.zeros_like(values).expand(len(images), -1) for values in (out.logits, out.features))
        return Output(logits, features)


def network_scores(
    infer: Infer, network: nn.Module, test: ImageSet, exemplars: ImageSet | None, num_classes: int
) -> dict[str, Tensor]:
    """Scores `[N, num_classes]` of the test images: by the `head` and, where there are exemplars, by `nearest_mean`."""
    out = infer(network, test.stack)
    scores = {"head": out.logits}
    if exemplars is not None:
        features = infer(network, exemplars.stack).features
        means = class_means(features, exemplars.labels, num_classes)
        scores["nearest_mean"] = nearest_mean_scores(out.features, means)
    return scores


def evaluate_scores(scores: Tensor, labels: Tensor, task_sizes: Sequence[int]) -> Evaluation:
    """How well these scores `[N, C]` tell the classes of the labels `[N]` apart."""
    return evaluate(ranks(scores, labels).cpu().numpy(), labels.cpu().numpy(), task_sizes)
