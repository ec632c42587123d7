"""Losses as pure functions of tensors, named as in their papers.

Symbols: z logits, S softmax, T temperature, n_c the number of training images of class c.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from foster.networks.heads import precise_linear


def effective_number(counts: Tensor, beta: float) -> Tensor:
    """E_n = (1 - beta^n) / (1 - beta), the effective number of n images `[C]`: 1 for beta = 0, and n for beta = 1.

    A class without images, for example because its exemplars were removed, counts as one image.
    """
    images = counts.double().clamp_min(1)
    return images if beta == 1 else (1 - beta**images) / (1 - beta)


def class_weights(counts: Tensor, beta: float) -> Tensor:
    """w_c = C (1/E_c) / sum_j (1/E_j), `[C]` float32: classes with few images have large weights; the mean is 1."""
    inverse = 1 / effective_number(counts, beta)
    return (inverse * len(counts) / inverse.sum()).float()


def logit_scales(counts: Tensor, beta: float) -> Tensor:
    """gamma_c = 1 / w_c `[C]`, the scales of the published code: below 1 for old classes, above 1 for new ones."""
    return 1 / class_weights(counts, beta)


def logit_scales_of_paper(counts: Tensor, beta: float, num_known: int) -> Tensor:
    """(gamma_1, gamma_2) = (E_old, E_new) / (E_old + E_new), one value for all old and one for all new classes, `[C]`.

    The ratio is that of `logit_scales`. The overall scale differs, which acts as a softmax temperature. If all classes
    are old, or all are new, every scale is 1.
    """
    effective = effective_number(counts, beta)
    old, new = (part.sum() / max(1, len(part)) for part in effective.tensor_split([num_known]))
    scales = torch.where(torch.arange(len(counts)) < num_known, old, new) / (old + new)
    return scales.float()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log S(z)_y, mean over the batch."""
    return F.cross_entropy(logits, labels)


def logits_alignment(logits: Tensor, labels: Tensor, scales: Tensor) -> Tensor:
    """L_LA = -log S(gamma * z)_y: cross-entropy on logits `[N, C]` scaled per class by `scales` `[C]`."""
    return F.cross_entropy(logits * scales, labels)


def feature_enhancement(new_branch_logits: Tensor, labels: Tensor) -> Tensor:
    """L_FE: cross-entropy of the new branch's own logits over all classes, old ones included."""
    return F.cross_entropy(new_branch_logits, labels)


def distillation(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """L_KD = -sum_c S(z'/T)_c log S(z/T)_c, mean over the batch; no factor T^2."""
    targets = F.softmax(teacher_logits / temperature, dim=1)
    return -(targets * F.log_softmax(logits / temperature, dim=1)).sum(1).mean()


def balanced_distillation(logits: Tensor, teacher_logits: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """L_BKD: distillation with the targets w * S(z'/T), normalised to sum 1 for each image; `weights` `[C]`."""
    targets = F.softmax(teacher_logits / temperature, dim=1) * weights
    targets = targets / targets.sum(1, keepdim=True)
    return -(targets * F.log_softmax(logits / temperature, dim=1)).sum(1).mean()


def balanced_distillation_of_paper(logits: Tensor, teacher_logits: Tensor, weights: Tensor) -> Tensor:
    """L_BKD as printed in the paper: KL(w * S(z') || S(z)) without normalisation or temperature, mean over the
    batch."""
    targets = F.softmax(teacher_logits, dim=1) * weights
    return (targets * (targets.clamp_min(1e-12).log() - F.log_softmax(logits, dim=1))).sum(1).mean()


def recalled(logits: Tensor, first_logits: Tensor) -> Tensor:
    """`logits` in which the first classes keep their total probability, divided among them as in `first_logits`.

    log S(.)_y = log S(z)_group + log S(z_first)_y for a class y of the first task; the other logits do not change.
    """
    group, others = logits.tensor_split([first_logits.shape[1]], dim=1)
    divided = F.log_softmax(first_logits, dim=1) + group.logsumexp(1, keepdim=True)
    return torch.cat([divided, others], dim=1)


def new_class_cross_entropy(logits: Tensor, labels: Tensor, num_known: int) -> Tensor:
    """-log S(z_new)_y over the logits of the new classes, mean over the batch; images of known classes have loss 0."""
    ignored = -1
    targets = (labels - num_known).clamp_min(ignored)
    return F.cross_entropy(logits[:, num_known:], targets, ignore_index=ignored, reduction="sum") / len(labels)


def local_similarity(logits: Tensor, labels: Tensor, margin: Tensor | float) -> Tensor:
    """L_LSC = [-log(exp(z_y - m) / sum_{c != y} exp(z_c))]_+ with the margin m on the true class only, mean over the
    batch.

    In the paper's symbols z = eta * y^ and m = eta * delta.
    """
    # A mask instead of gather or scatter: their deterministic backward passes may wait for the host.
    is_true = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    rivals = logits.float().masked_fill(is_true, -torch.inf).logsumexp(1)
    true = logits.float().masked_fill(~is_true, 0).sum(1)
    return F.relu(rivals - (true - margin)).mean()


def proxy_nca(logits: Tensor, labels: Tensor) -> Tensor:
    """The public toolkit's form of L_LSC: -s_y + log(1 + sum_{c != y} exp(s_c)) with s = z - max z, mean over the
    batch.

    If the true class has the largest logit, this is cross-entropy; otherwise it is slightly larger. The toolkit
    subtracts its margin from every similarity, which changes nothing, so this loss has no margin.
    """
    is_true = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    shifted = logits.float() - logits.float().amax(1, keepdim=True)
    rivals = shifted.masked_fill(is_true, 0).logsumexp(1)
    return (rivals - shifted.masked_fill(~is_true, 0).sum(1)).mean()


def pod_spatial(stages: Sequence[Tensor], old_stages: Sequence[Tensor]) -> Tensor:
    """L_spatial: the distance between the pooled maps of two networks, mean over stages `[N, C, H, W]` and the batch.

    Squared maps are summed over columns and over rows; both sums form one vector an image, normalised to length 1.
    """
    distances = [
        torch.linalg.vector_norm(_pooled(maps) - _pooled(old_maps), dim=1).mean()
        for maps, old_maps in zip(stages, old_stages, strict=True)
    ]
    return torch.stack(distances).mean()


def _pooled(maps: Tensor) -> Tensor:
    """Unit vectors `[N, C * (H + W)]`: the sums of squares of every row and every column of each channel."""
    energy = maps.float().square()
    return F.normalize(torch.cat([energy.sum(3).flatten(1), energy.sum(2).flatten(1)], dim=1))


def pod_flat(features: Tensor, old_features: Tensor) -> Tensor:
    """L_flat = 1 - cos(h, h'), mean over the batch; features `[N, d]`."""
    return (1 - F.cosine_similarity(features.float(), old_features.float())).mean()


def cosines(features: Tensor, classifiers: Tensor) -> Tensor:
    """The cosines `[N, C]` between features `[N, d]` and classifiers `[C, d]`."""
    return precise_linear(F.normalize(features), F.normalize(classifiers))


def prospective_transport(
    new_logits: Tensor, features: Tensor, prospect: Tensor, scale: Tensor, temperature: float
) -> Tensor:
    """L_PT = L_KD with the targets sigma cos(h, W^_new) for the new classes' logits z_new `[N, num_new]`.

    `prospect` W^_new `[num_new, d]` are classifiers transported from known classes. The targets have no gradient.
    """
    return distillation(new_logits, (scale * cosines(features, prospect)).detach(), temperature)


def retrospective_transport(
    features: Tensor, retrospect: Tensor, scale: Tensor, old_logits: Tensor, temperature: float
) -> Tensor:
    """L_RT = L_KD with the old network's logits z' `[N, num_known]` as targets for sigma cos(h, W^_old).

    `retrospect` W^_old `[num_known, d]` are classifiers transported from new to known classes. They and the features h
    have gradients; sigma has none.
    """
    return distillation(scale.detach() * cosines(features, retrospect), old_logits, temperature)


def auxiliary_cross_entropy(logits: Tensor, labels: Tensor, num_known: int) -> Tensor:
    """L_aux: cross-entropy over `1 + num_new` classes: all known classes are class 0, the k-th new class is k + 1."""
    return F.cross_entropy(logits, (labels - num_known + 1).clamp_min(0))
