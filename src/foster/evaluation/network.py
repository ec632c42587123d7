"""How well a network tells all classes seen apart: by its head, and by the nearest mean of exemplars."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.evaluation.metrics import Evaluation, evaluate
from foster.evaluation.predict import class_means, nearest_mean_scores, ranks
from foster.networks.network import Output

Infer = Callable[[nn.Module, Tensor], Output]


def evaluate_network(
    infer: Infer, network: nn.Module, test: ImageSet, exemplars: ImageSet | None, task_sizes: Sequence[int]
) -> dict[str, Evaluation]:
    """`head` and, where there are exemplars, `nearest_mean`, on the test images of all classes seen."""
    out = infer(network, test.images)
    scores = {"head": out.logits}
    if exemplars is not None:
        features = infer(network, exemplars.images).features
        means = class_means(features, exemplars.labels, sum(task_sizes))
        scores["nearest_mean"] = nearest_mean_scores(out.features, means)
    return {
        kind: evaluate(ranks(found, test.labels).cpu().numpy(), test.labels.cpu().numpy(), task_sizes)
        for kind, found in scores.items()
    }
