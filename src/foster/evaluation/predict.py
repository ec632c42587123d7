"""From images to scores of every class, and from scores to the rank of the true class."""

from collections.abc import Callable

import torch
from torch import Tensor

from foster.data.herding import positions_by_class, unit_length


@torch.no_grad()
def batched(
    forward: Callable[[Tensor], Tensor],
    images: Tensor,
    batch_size: int,
    device: torch.device | str,
    result_device: torch.device | str = "cpu",
) -> Tensor:
    """`forward` of all images, float32 `[N, ...]` on `result_device`.

    `forward` takes a uint8 batch `[n, 3, H, W]` on `device`, with 1 <= n <= `batch_size` (n = 0 where there are no
    images at all), and keeps its module in eval mode. Results stay on the device until the last batch is done.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    results: Tensor | None = None
    start = 0
    for batch in torch.split(images, batch_size):
        outputs = forward(batch.to(device, non_blocking=True))
        if results is None:
            results = torch.empty(len(images), *outputs.shape[1:], dtype=torch.float32, device=outputs.device)
        # Copied at once: a graph-captured forward gives every batch the same output memory.
        results[start : start + len(batch)].copy_(outputs)
        start += len(batch)
    assert results is not None, "a split of any tensor has a first part"
    return results.to(result_device)


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Unit-length mean of the unit-length features `[N, d]` of each class, `[num_classes, d]`.

    A class without features has a row of inf: infinitely far from everything, so never the nearest.
    """
    members = positions_by_class(labels.to(features.device), range(num_classes))
    vectors = unit_length(features)
    nowhere = vectors.new_full(features.shape[1:], torch.inf)
    # Class by class rather than index_add, whose order of summation on a GPU changes from run to run.
    return torch.stack([unit_length(vectors[own].mean(0)) if len(own) else nowhere for own in members])


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """`-|v - mean|^2` for the unit-length features v of `[N, d]` and the class means `[C, d]`: scores `[N, C]`."""
    # Differences and not a matrix product: that gives NaN for a mean at infinity, and rounds under TF32 or autocast.
    vectors = unit_length(features)
    distances = torch.cdist(vectors, means.to(vectors), compute_mode="donot_use_mm_for_euclid_dist")
    return -distances.square()


def ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """How many classes are placed before the true one, int64 `[N]`, for scores `[N, C]` and labels `[N]`.

    0 means correct, below 5 correct among the best five. Equal scores are placed by class id, as argmax does.
    A score that is not a number is placed before every other, as argmax does, but is never correct: a true class
    whose score is NaN or -inf was not predicted at all and has rank C.
    """
    num_classes = scores.shape[1]
    labels = labels.to(scores.device)
    if len(labels) and not bool(((labels >= 0) & (labels < num_classes)).all()):
        raise ValueError(f"labels must lie in 0 to {num_classes - 1}; some are below or above")
    true_label = labels[:, None]
    true_score = scores.gather(1, true_label)
    is_earlier = torch.arange(num_classes, device=scores.device) < true_label
    is_before = ~(scores <= true_score) | ((scores == true_score) & is_earlier)
    return torch.where((true_score > -torch.inf).squeeze(1), is_before.sum(1), num_classes)
