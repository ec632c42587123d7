"""A head that knows its classes before anything is trained: linear discriminants of a pretrained backbone's features.

Training then begins where "a frozen backbone and the nearest mean" would end, and a bit above it: the shared covariance
of the classes counts, too.
"""

import torch
from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.evaluation.predict import Infer
from foster.learner.calibration import fit_temperature
from foster.networks.boosted import BoostedNetwork
from foster.networks.heads import Head
from foster.networks.network import Network

SHRINKAGE = 0.4
"""By how much the covariance is drawn towards a multiple of the identity: few photos say little about it."""

LEAST_SPREAD = 1e-6
"""Photos of a class that differ less than that, as a share of how much all differ, say nothing of how they do."""

SCALE = 0.05
"""What discriminants are multiplied by, at most: estimated from few photos, they are far too sure of themselves."""


@torch.no_grad()
def start_head(network: nn.Module, infer: Infer, data: ImageSet) -> None:
    """Set the linear head of a network, plain or boosted, from the features of `data`; any other is left alone.

    Every class needs an image: the head of a network with a class that has none is left alone, too.
    """
    if isinstance(network, Network) and type(network.head) is Head:
        discriminants = _discriminants(network, network.num_classes, infer, data)
        if discriminants is not None:
            weight, bias = discriminants
            network.head.weight.copy_(weight)
            network.head.bias.copy_(bias)
    elif isinstance(network, BoostedNetwork) and len(network.old.branches) == 1:
        # Both branches are the same at first, so each gives half of what a class's features say.
        discriminants = _discriminants(network.old, network.num_classes, infer, data)
        if discriminants is not None:
            weight, bias = discriminants
            num_known = network.num_known
            for block, values in (
                (network.old_block, weight[:num_known] / 2),
                (network.new_on_old, weight[num_known:] / 2),
                (network.new_block, weight / 2),
                (network.old_bias, bias[:num_known]),
                (network.new_bias, bias[num_known:]),
            ):
                if block.requires_grad:  # what the settings keep as it is stays so
                    block.copy_(values)
            network.new_branch_head.weight.copy_(weight)
            network.new_branch_head.bias.copy_(bias)


def _discriminants(network: Network, num_classes: int, infer: Infer, data: ImageSet) -> tuple[Tensor, Tensor] | None:
    labelled = data.select(data.labels >= 0)
    if not bool((labelled.class_counts(num_classes) > 0).all()):
        return None
    features = infer(network, labelled.stack).features.double()
    return linear_discriminants(features, labelled.labels.to(features.device), num_classes)


def linear_discriminants(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Weight `[C, d]` and bias `[C]` that tell Gaussian classes of one covariance and equal numbers apart, for features
    `[N, d]` with labels `[N]`, centred so that logits sum to 0.

    They are multiplied by at most `SCALE`, and by less where they would be surer than they are right of photos that had
    no part in them: compact classes would saturate the softmax, and nothing would be learned any more.
    """
    means = torch.stack([features[labels == k].mean(0) for k in range(num_classes)])
    spread = features - means[labels]
    covariance = spread.T @ spread / len(spread)
    identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    size, size_of_all = covariance.diagonal().mean(), features.var(0, correction=0).mean()
    if size <= LEAST_SPREAD * size_of_all:  # one photo of each class, or copies of it: the nearest mean is what is left
        size = size_of_all
    size = size.clamp_min(torch.finfo(torch.float32).tiny)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * size * identity
    precision = torch.cholesky_inverse(torch.linalg.cholesky(shrunk))
    weight = means @ precision
    bias = -(weight * means).sum(1) / 2
    scores, are_honest = left_out_scores(features, labels, means, precision)
    honest = scores[are_honest]
    unit = (honest.std().item() if honest.numel() > 1 else 0.0) or 1.0  # a temperature is looked for around 1
    temperature = fit_temperature(honest / unit, labels[are_honest])
    scale = min(SCALE, 1 / (unit * temperature)) if temperature else SCALE
    return scale * (weight - weight.mean(0)), scale * (bias - bias.mean())


def left_out_scores(features: Tensor, labels: Tensor, means: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """What discriminants from all photos but one say of that one, `[N, C]`, and of which photos they do, `[N]`: a class
    needs another one.

    Without photo i of a class of n, at a distance d from its mean m, that mean is m - d / (n - 1), and the covariance S
    becomes S - a dd', whose inverse is P + c (Pd)(Pd)' with c = a / (1 - a d'Pd); a d'Pd is below 1, as S is drawn
    towards the identity.
    """
    counts = torch.bincount(labels, minlength=len(means))[labels].to(features)
    others = (counts - 1).clamp_min(1)
    spread = features - means[labels]
    turned = spread @ precision
    length = (turned * spread).sum(1)
    share = (1 - SHRINKAGE) * counts / (others * len(features))
    gain = share / (1 - share * length)
    along, of_means = (features * turned).sum(1), turned @ means.T
    weight = means @ precision
    products = features @ weight.T + (gain * along)[:, None] * of_means
    squares = (weight * means).sum(1) + gain[:, None] * of_means.square()
    rows, longer = torch.arange(len(labels), device=labels.device), 1 + gain * length
    products[rows, labels] -= along * longer / others
    squares[rows, labels] += (length / others - 2 * of_means[rows, labels]) * longer / others
    return products - squares / 2, counts > 1
