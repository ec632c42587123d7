"""Calibrated confidence: one temperature, fitted on images that were never trained on."""

import math

import torch
from torch import Tensor
from torch.nn import functional

MIN_IMAGES = 10
"""With fewer held-out images, the temperature would depend on chance."""

UNCALIBRATED = (
    "confidence is not calibrated: too few images were held out when this was learned, so probabilities may be far too "
    "high, and few answers will be unknown; training=fast and training=standard hold images out"
)

LOWEST, HIGHEST = 0.05, 20.0

USUAL_SPREAD, USUAL_DEVIATION = 2.0, 0.5
"""The prior of the temperature: the usual standard deviation of calibrated scores, and the spread of its logarithm."""


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """softmax(scores / temperature) of scores `[N, C]`; a class at -inf has probability 0."""
    return functional.softmax(scores.float() / temperature, dim=1)


@torch.no_grad()
def fit_temperature(scores: Tensor, labels: Tensor) -> float | None:
    """The temperature under which scores `[N, C]` of held-out images best predict their labels `[N]`; None for too few.

    Minimises the negative log-likelihood, in which every class counts the same however many images it has. A prior
    prefers temperatures that give scores the usual spread, so that few images do not decide alone.
    """
    num_images, num_classes = scores.shape
    if num_images < MIN_IMAGES or num_classes < 2:
        return None
    scores, labels = scores.double().cpu(), labels.cpu()
    usual = math.log(min(HIGHEST, max(LOWEST, spread_of(scores) / USUAL_SPREAD)))
    # A class without a mean has a score of -inf. A very low finite score keeps the sums finite.
    scores = scores.clamp_min(float(scores[scores.isfinite()].min()) - 1000)
    counts = torch.bincount(labels, minlength=num_classes)
    weights = 1 / counts[labels].double()
    weights *= num_images / weights.sum()

    def loss(logarithm: float) -> float:
        misfit = functional.cross_entropy(scores / math.exp(logarithm), labels, reduction="none")
        return float(weights @ misfit) + ((logarithm - usual) / USUAL_DEVIATION) ** 2 / 2

    # Golden-section search: importing scipy.optimize would take longer.
    golden = (math.sqrt(5) - 1) / 2
    low, high = math.log(LOWEST), math.log(HIGHEST)
    left, right = high - golden * (high - low), low + golden * (high - low)
    of_left, of_right = loss(left), loss(right)
    while high - low > 1e-6:
        if of_left < of_right:
            high, right, of_right = right, left, of_left
            left = high - golden * (high - low)
            of_left = loss(left)
        else:
            low, left, of_left = left, right, of_right
            right = low + golden * (high - low)
            of_right = loss(right)
    return round(math.exp(low), 4)


def spread_of(scores: Tensor) -> float:
    """The standard deviation of scores `[N, C]` around the mean of each image, on which a softmax does not depend."""
    known = scores.where(scores.isfinite(), torch.nan)
    return float((known - known.nanmean(1, keepdim=True)).square().nanmean().sqrt())


def expected_calibration_error(probability: Tensor, labels: Tensor) -> float:
    """The expected calibration error of probabilities `[N, C]` for labels `[N]`, with ten bins of equal width."""
    confidence, predicted = probability.cpu().max(1)
    surplus = confidence.double() - (predicted == labels.cpu()).double()
    tenths = (confidence * 10).long().clamp_max(9)
    return float(torch.bincount(tenths, surplus).abs().sum() / max(1, len(surplus)))
