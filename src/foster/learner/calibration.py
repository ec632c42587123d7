"""Confidence that means what it says: one temperature, fitted on images that were never trained on."""

import torch
from torch import Tensor
from torch.nn import functional

MIN_IMAGES = 10
"""With fewer held-out images a temperature would be noise."""

UNCALIBRATED = (
    "confidence is not calibrated: too few images were held out when this was learned, so probabilities may be far too "
    "high, and few answers will be unknown; the presets fast and standard hold images out"
)

LOWEST, HIGHEST = 0.05, 20.0
NUM_CANDIDATES = 61


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """softmax(scores / temperature) of scores `[N, C]`; a class at -inf has probability 0."""
    return functional.softmax(scores.float() / temperature, dim=1)


@torch.no_grad()
def fit_temperature(scores: Tensor, labels: Tensor) -> float | None:
    """The temperature under which scores `[N, C]` of held-out images best predict their labels `[N]`; None for too few.

    Minimises the negative log-likelihood, in which every class counts the same however many images it holds. The
    true class is believed with (n + 1) / (n + 2) and not with 1, as Platt did, so that a network that is right on all
    of n images is not taken to be always right.
    """
    num_images, num_classes = scores.shape
    if num_images < MIN_IMAGES or num_classes < 2:
        return None
    scores, labels = scores.double().cpu(), labels.cpu()
    # A class without a mean has a score of -inf; a finite one that is as good as it keeps the sums finite.
    scores = scores.clamp_min(float(scores[scores.isfinite()].min()) - 1000)
    counts = torch.bincount(labels, minlength=num_classes)
    weights = 1 / counts[labels].double()
    weights /= weights.sum()
    belief = (num_images + 1) / (num_images + 2)
    targets = torch.full_like(scores, (1 - belief) / (num_classes - 1))
    targets[torch.arange(num_images), labels] = belief

    def loss(temperature: float) -> float:
        log_likelihood = (targets * functional.log_softmax(scores / temperature, dim=1)).sum(1)
        return float(-(weights * log_likelihood).sum())

    low, high = torch.tensor([LOWEST, HIGHEST], dtype=torch.float64).log().tolist()
    for _ in range(3):  # each round looks more closely around the best of the last
        grid = torch.linspace(low, high, NUM_CANDIDATES, dtype=torch.float64)
        best = min(grid.tolist(), key=lambda logarithm: loss(float(torch.tensor(logarithm).exp())))
        spacing = (high - low) / (NUM_CANDIDATES - 1)
        low, high = best - spacing, best + spacing
    return round(min(HIGHEST, max(LOWEST, float(torch.tensor(best, dtype=torch.float64).exp()))), 4)


def expected_calibration_error(probability: Tensor, labels: Tensor, num_bins: int = 10) -> float:
    """Mean over images of |confidence - accuracy| of the bin that its confidence falls in, for `[N, C]` and `[N]`."""
    confidence, predicted = probability.cpu().max(1)
    is_right = (predicted == labels.cpu()).double()
    bins = (confidence * num_bins).long().clamp_max(num_bins - 1)
    error = 0.0
    for index in range(num_bins):
        inside = bins == index
        if bool(inside.any()):
            gap = (confidence[inside].double().mean() - is_right[inside].mean()).abs()
            error += float(gap) * float(inside.double().mean())
    return error
