"""From features to scores of every class, and from scores to the rank of the true class."""

import torch
from torch import Tensor

from foster.data.herding import positions_by_class, unit_length

CLASSES_AT_ONCE = 8


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
    # Not `torch.cdist`, which has no counterpart in ONNX; some classes at a time, since all differences take memory.
    vectors = unit_length(features)[:, None]
    parts = [-(vectors - part).square().sum(-1) for part in means.to(vectors).split(CLASSES_AT_ONCE)]
    return torch.cat(parts, dim=1)


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
