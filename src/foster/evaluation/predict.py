"""Scores of every class by the head and by the nearest mean of exemplars, and accuracies from scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foster.data.herding import positions_by_class, unit_length
from foster.data.images import ImageSet, Stack
from foster.evaluation.metrics import Evaluation, evaluate
from foster.networks.network import Output

CLASSES_AT_ONCE = 8


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Unit-length mean of the unit-length features `[N, d]` of each class, `[num_classes, d]`.

    A class without features has a row of inf: infinitely far from everything, so never the nearest.
    """
    members = positions_by_class(labels.to(features.device), range(num_classes))
    vectors = unit_length(features)
    nowhere = vectors.new_full(features.shape[1:], torch.inf)
    # Class by class rather than index_add, whose order of summation on a GPU changes from run to run.
    return torch.stack([unit_length(vectors[rows].mean(0)) if len(rows) else nowhere for rows in members])


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """`-|v - mean|^2` for the unit-length features v of `[N, d]` and the class means `[C, d]`: scores `[N, C]`."""
    # A matrix product would give NaN for an infinite mean, and be rounded under TF32 or autocast. `torch.cdist` cannot
    # be exported to ONNX. The differences to all classes at once would take too much memory.
    vectors = unit_length(features)[:, None]
    parts = [-(vectors - part).square().sum(-1) for part in means.to(vectors).split(CLASSES_AT_ONCE)]
    return torch.cat(parts, dim=1)


def ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """The number of classes ranked before the true one, int64 `[N]`, for scores `[N, C]` and labels `[N]`.

    0 means correct; below 5, the true class is among the best five. Equal scores are ranked by class id, and NaN is
    ranked first, as argmax does. A true class with the score NaN or -inf is never correct: it has rank C.
    """
    num_classes = scores.shape[1]
    labels = labels.to(scores.device)
    true_label = labels[:, None]
    true_score = scores.gather(1, true_label)
    is_earlier = torch.arange(num_classes, device=scores.device) < true_label
    is_before = ~(scores <= true_score) | ((scores == true_score) & is_earlier)
    return torch.where((true_score > -torch.inf).squeeze(1), is_before.sum(1), num_classes)


Infer = Callable[[nn.Module, Stack], Output]
"""Runs a network in eval mode over uint8 images `[N, 3, H, W]`, without gradients."""


@dataclass(frozen=True)
class DryRunInference:
    """Inference of a dry run: zeros, in the sizes of the outputs `of_one` image."""

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


def evaluate_scores(scores: Tensor, test: ImageSet, task_sizes: Sequence[int]) -> Evaluation:
    """Accuracies of these scores `[N, C]`; `test.beside["task"]` has the task of each image where its class does not
    determine it."""
    tasks = test.beside.get("task")
    places = None if tasks is None else tasks.cpu().numpy()
    return evaluate(ranks(scores, test.labels).cpu().numpy(), test.labels.cpu().numpy(), task_sizes, places)
