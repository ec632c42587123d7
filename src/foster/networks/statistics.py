"""Sums over the features of images, in any order, and the linear classifiers that are computed from them.

Counts n_c, class sums s_c and the second moment S = sum phi phi^T of features phi `[d]` are sufficient for nearest
means, linear discriminants (SLDA, Hayes and Kanan 2020), ridge regression (ACIL, Zhuang et al. 2022; RanPAC, McDonnell
et al. 2023) and the Mahalanobis distance. All sums are float64, so that rounding does not change a classifier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from foster.seeding import Address, generator

ROWS_AT_ONCE = 4096
"""Rows of features that are summed at a time, which bounds the memory."""

BIAS_DEVIATION = 0.3
"""The standard deviation of the biases of random features. For standardised features, that of the products is 1."""

LEAST_SPREAD = 1e-9
"""A variance within classes below this share of the mean square is rounding error: one image per class, or copies."""

LEAST_BETWEEN = 1e-3
"""A lower bound of the variance between class means, as a share of that within classes: the estimate can be
negative."""

SMALLEST_FEATURE = 1e-8

SHRINKAGE = 0.5
"""The shrinkage of the covariances of few photos, as chosen in results/notes/photo-heads.md."""


def unit_roots(features: Tensor) -> Tensor:
    """The signed square roots of features `[N, d]`, scaled to unit length. They are closer to a normal distribution
    than pooled features, which are rarely negative and have large outliers."""
    values = features.float()
    # The clamp avoids the infinite gradient of the root at 0, which Grad-CAM cannot use.
    return functional.normalize(values.sign() * values.abs().clamp_min(SMALLEST_FEATURE).sqrt(), dim=1)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over images: `counts` int64 `[C]`, `sums` float64 `[C, d]` and `second_moment` float64 `[d, d]`.

    They are never changed in place: every method returns a new object.
    """

    counts: Tensor
    sums: Tensor
    second_moment: Tensor

    def __post_init__(self) -> None:
        num_classes, num_features = self.sums.shape
        if self.counts.shape != (num_classes,) or self.second_moment.shape != (num_features, num_features):
            shapes = [list(part.shape) for part in (self.counts, self.sums, self.second_moment)]
            raise ValueError(f"counts [C], sums [C, d] and second_moment [d, d] do not agree: {shapes}")

    @classmethod
    def empty(cls, num_classes: int, num_features: int, device: torch.device | str | None = None) -> "Statistics":
        """The statistics of no images."""
        return cls(
            torch.zeros(num_classes, dtype=torch.int64, device=device),
            torch.zeros(num_classes, num_features, dtype=torch.float64, device=device),
            torch.zeros(num_features, num_features, dtype=torch.float64, device=device),
        )

    @property
    def num_classes(self) -> int:
        return self.sums.shape[0]

    @property
    def num_features(self) -> int:
        return self.sums.shape[1]

    @property
    def num_images(self) -> int:
        return int(self.counts.sum())

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in (self.counts, self.sums, self.second_moment))

    @property
    def means(self) -> Tensor:
        """The mean of each class, `[C, d]`; 0 for a class without images."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    @cached_property
    def within_class_covariance(self) -> Tensor:
        """W = (S - sum_c s_c s_c^T / n_c) / N, `[d, d]`; 0 without images."""
        return (self.second_moment - self.means.T @ self.sums) / max(1, self.num_images)

    @cached_property
    def factor(self) -> Tensor:
        """The Cholesky factor `[d, d]` of the covariance A with the usual shrinkage, SHRINKAGE."""
        return shrunk_covariance(self, SHRINKAGE)

    @cached_property
    def prior_of_means(self) -> "PriorOfMeans | None":
        """The prior, estimated from all classes; None with a single class, or with one image per class."""
        return _estimated_prior(self)

    def grown(self, num_new: int) -> "Statistics":
        """The statistics with `num_new` more classes without images."""
        counts, sums = functional.pad(self.counts, (0, num_new)), functional.pad(self.sums, (0, 0, 0, num_new))
        return Statistics(counts, sums, self.second_moment)

    def added(
        self, features: Tensor, labels: Tensor, transform: Callable[[Tensor], Tensor] | None = None
    ) -> "Statistics":
        """The statistics with more images, of `features` `[N, d]` and class ids `labels` `[N]`.

        `transform`, if given, is applied to the features first, `ROWS_AT_ONCE` rows at a time.
        """
        counts, sums, second_moment = self.counts.clone(), self.sums.clone(), self.second_moment.clone()
        device = sums.device
        for rows, ids in zip(features.split(ROWS_AT_ONCE), labels.split(ROWS_AT_ONCE), strict=True):
            rows, ids = rows.to(device), ids.to(device)
            values = (rows if transform is None else transform(rows)).double()
            members = functional.one_hot(ids, self.num_classes).double()
            # Matrix products have the same order of summation in every run, unlike index_add.
            counts += members.sum(0).long()
            sums.addmm_(members.T, values)
            second_moment.addmm_(values.T, values)
        return Statistics(counts, sums, second_moment)

    def without(self, features: Tensor, labels: Tensor) -> "Statistics":
        """The statistics without some of their images, of `features` `[n, d]` and class ids `labels` `[n]`."""
        part = Statistics.empty(self.num_classes, self.num_features, self.sums.device).added(features, labels)
        counts, sums = self.counts - part.counts, self.sums - part.sums
        return Statistics(counts, sums, self.second_moment - part.second_moment)

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "Statistics":
        """The statistics with one class for each group of present classes, in this order. Present classes in no group
        are removed.

        Merging and reordering are exact. The second moment is a sum over all classes: a removed class is assumed to
        have the average covariance W, and s_c s_c^T / n_c + n_c W is subtracted, which does not change W.
        """
        members = torch.zeros(len(groups), self.num_classes, dtype=torch.float64, device=self.sums.device)
        for row, group in enumerate(groups):
            members[row, list(group)] = 1
        counts = (members @ self.counts.double()).long()
        is_gone = members.sum(0) == 0
        second_moment = self.second_moment
        if is_gone.any():
            spread = self.counts[is_gone].sum() * self.within_class_covariance
            second_moment = second_moment - self.means[is_gone].T @ self.sums[is_gone] - spread
        return Statistics(counts, members @ self.sums, second_moment)


def discriminants(statistics: Statistics, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Linear discriminants: `weight` `[C, d]` and `bias` `[C]`, float64, of the scores weight phi + bias.

    All classes have the covariance A = (1 - shrinkage) W + shrinkage tr(W)/d I. The score of a class with mean mu is
    phi^T A^-1 mu - mu^T A^-1 mu / 2. If W is 0, as with one image per class, A is I and the
    nearest mean has the highest score.
    """
    means, factor = statistics.means, shrunk_covariance(statistics, shrinkage)
    weight = torch.cholesky_solve(means.T, factor).T
    return weight, -(weight * means).sum(1) / 2


def discriminants_of_few(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Linear discriminants as above with the usual shrinkage, for classes with few images, or with very different
    numbers of images (empirical Bayes).

    The mean of few images has a large error, so that all images are far from it: a class of 6 images among classes of
    60 would hardly ever be predicted. True class means are assumed to be normally distributed around a centre, with
    covariance b A. The expected mean of a class is then its measured mean, shrunk towards the centre by k / (n_c + k)
    with k = w / b, where w is the variance within classes (both as multiples of A). The squared distance of an image to
    it is larger on average, and half of b / (n_c + k) is added to the score of the class. This addition is larger than
    that of another class by at most a quarter of the squared distance between their means. Without this limit, one
    wrong label in a class of few images can attract all images of another class.
    """
    prior = statistics.prior_of_means
    if prior is None:
        return discriminants(statistics, SHRINKAGE)
    means, excess = prior.expected(statistics.means, statistics.counts)
    weight = torch.cholesky_solve(means.T, statistics.factor).T
    return weight, (excess - (weight * means).sum(1)) / 2


class PriorOfMeans(NamedTuple):
    """The prior distribution of a class mean, and the variance of one image."""

    centre: Tensor
    """`[d]`"""
    within: Tensor
    between: Tensor
    """`within` and `between` are multiples of A, `[]`."""
    most: Tensor
    """Twice the largest addition to the scores of each class, `[C]`."""

    def expected(self, means: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The expected means `[C, d]`, given the measured `means` `[C, d]` of `counts` `[C]` images, and the
        values `[C]` that are subtracted from the squared distances of images to them."""
        share = 1 / (counts + self.within / self.between)
        means = self.centre + (counts * share)[:, None] * (means - self.centre)
        return means, torch.minimum(self.between * share, self.most)


def _estimated_prior(statistics: Statistics) -> PriorOfMeans | None:
    factor = statistics.factor
    is_seen, num_images = statistics.counts > 0, statistics.num_images
    num_seen = int(is_seen.sum())
    # tr(A^-1 W) of the images in W, corrected to its expectation for other images.
    within = (torch.cholesky_inverse(factor) * statistics.within_class_covariance).sum()
    within = within * num_images / max(1, num_images - num_seen)
    unbiased = 1 - (1 - SHRINKAGE) * within / max(1, num_images)
    if unbiased > 0:  # else W is from many more images than are left: see `Statistics.regrouped`
        within = within / unbiased
    if num_seen < 2 or within <= 0:
        return None
    centre = statistics.means[is_seen].mean(0)
    around = statistics.means[is_seen] - centre
    distances = (torch.cholesky_solve(around.T, factor).T * around).sum(1)
    between = (distances - within / statistics.counts[is_seen]).mean() * num_seen / (num_seen - 1)
    between = between.clamp_min(LEAST_BETWEEN * within)
    prior = PriorOfMeans(centre, within, between, torch.full_like(statistics.sums[:, 0], torch.inf))
    means, excess = prior.expected(statistics.means, statistics.counts)
    weight = torch.cholesky_solve(means.T, factor).T
    squares = (weight * means).sum(1)
    apart = squares[:, None] + squares - 2 * weight @ means.T
    is_compared = is_seen & ~torch.eye(statistics.num_classes, dtype=torch.bool, device=is_seen.device)
    limits = torch.where(is_compared, excess + apart.clamp_min(0) / 2, torch.inf)
    return prior._replace(most=limits.min(1).values)


def left_out_scores(statistics: Statistics, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out scores `[N, C]`, float64: for each image, those of `discriminants_of_few` of all other images.

    The images have `features` `[N, d]` and class ids `labels` `[N]`, and are among those of the `statistics`. The
    second result `[N]` says which scores are valid: the class must have another image.

    Let r be the difference of an image to the mean of its class of n images. Without the image, that mean decreases by
    r / (n - 1), and A^-1 increases by h (A^-1 r)(A^-1 r)^T, see `left_out_gain`. The prior of means and tr(W) are not
    changed.
    """
    features, labels = features.double(), labels.to(features.device)
    counts = statistics.counts[labels].double()
    is_judged = counts > 1
    factor, prior = statistics.factor, statistics.prior_of_means
    if prior is None:
        weight, bias = discriminants(statistics, SHRINKAGE)
        return features @ weight.T + bias, torch.zeros_like(is_judged)
    others = (counts - 1).clamp(min=1)
    apart = features - statistics.means[labels]
    turned = torch.cholesky_solve(apart.T, factor).T
    length = (turned * apart).sum(1)
    gain = left_out_gain(counts, statistics.num_images, length)
    along = (features * turned).sum(1)

    means, excess = prior.expected(statistics.means, statistics.counts)
    weight = torch.cholesky_solve(means.T, factor).T
    turned_means = turned @ means.T
    products = features @ weight.T + (gain * along)[:, None] * turned_means
    squares = (weight * means).sum(1) + gain[:, None] * turned_means.square()
    scores = products - (squares - excess) / 2

    # The image's own class has one image less: its expected mean is `reduced_means` plus `step` times r.
    reduced_means, reduced_excess = prior.expected(statistics.means, (statistics.counts - 1).clamp(min=1))
    reduced_weight = torch.cholesky_solve(reduced_means.T, factor).T
    step = -1 / (others + prior.within / prior.between)
    turned_reduced = (turned * reduced_means[labels]).sum(1) + step * length
    product = (features * reduced_weight[labels]).sum(1) + step * along + gain * along * turned_reduced
    square = (reduced_weight * reduced_means).sum(1)[labels] + 2 * step * (turned * reduced_means[labels]).sum(1)
    square = square + step.square() * length + gain * turned_reduced.square()
    scores[torch.arange(len(labels), device=labels.device), labels] = product - (square - reduced_excess[labels]) / 2
    return scores, is_judged


def left_out_gain(counts: Tensor, num_images: int, length: Tensor) -> Tensor:
    """The factor h by which A^-1 increases without an image of a class of n images (`counts`), of N in all.

    A decreases by g r r^T with g = (1 - SHRINKAGE) n / ((n - 1) N), so h = g / (1 - g r^T A^-1 r), where r^T A^-1 r is
    the `length` of the image.
    """
    share = (1 - SHRINKAGE) * counts / ((counts - 1).clamp(min=1) * num_images)
    return share / (1 - share * length)


def shrunk_covariance(statistics: Statistics, shrinkage: float) -> Tensor:
    """The Cholesky factor `[d, d]` of A = (1 - shrinkage) W + shrinkage tr(W)/d I; I if W is 0."""
    covariance, second_moment = statistics.within_class_covariance, statistics.second_moment
    identity = torch.eye(statistics.num_features, dtype=torch.float64, device=covariance.device)
    variance = covariance.diagonal().mean()
    if variance > LEAST_SPREAD * second_moment.diagonal().mean() / max(1, statistics.num_images):
        factor: Tensor = torch.linalg.cholesky((1 - shrinkage) * covariance + shrinkage * variance * identity)
        return factor
    return identity


def ridge(second_moment: Tensor, sums: Tensor, penalty: float) -> Tensor:
    """Ridge regression to labels of 0 and 1 from the second moment G `[d, d]` and the class sums Q^T `[C, d]`: the
    weight `[C, d]` is ((G + penalty I)^-1 Q)^T, float64."""
    identity = torch.eye(len(second_moment), dtype=torch.float64, device=second_moment.device)
    factor = torch.linalg.cholesky(torch.add(second_moment, identity, alpha=penalty))
    return torch.cholesky_solve(sums.T, factor).T


def random_weights(num_inputs: int, num_features: int, address: Address) -> tuple[Tensor, Tensor]:
    """R `[num_inputs, num_features]` from N(0, 1 / num_inputs) and b `[num_features]` from 0.3 N(0, 1), float32. They
    depend only on the address."""
    source = generator(address)
    weight = torch.randn(num_inputs, num_features, generator=source, device="cpu") / num_inputs**0.5
    return weight, BIAS_DEVIATION * torch.randn(num_features, generator=source, device="cpu")


def random_features(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """h = ReLU(phi R + b), `[N, num_features]` of features `[N, num_inputs]`."""
    return functional.relu(torch.addmm(bias, features.to(weight.dtype), weight))
