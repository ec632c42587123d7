"""Whether a photo shows a known class, by its confidence and its nearness to a class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from foster.data.herding import unit_length
from foster.errors import DataError, words_of
from foster.networks.statistics import Statistics, left_out_gain

MIN_IMAGES = 20
"""With fewer measured photos, the threshold would depend on chance."""

KEPT_SHARE = 0.95
"""The share of photos of known classes that should be answered with a class."""

UNFAMILIAR = (
    f"'auto' needs a classifier of two classes or more that was measured on {MIN_IMAGES} photos or more; give a "
    "probability such as 0.7, or learn more photos (a trained network is measured on held-out photos alone)"
)

Unknown = float | Literal["auto"] | None
"""The probability below which a photo is unknown; "auto" uses its familiarity."""

PREFIX = "familiarity."


@dataclass(frozen=True, eq=False)
class Familiarity:
    """Confidence and nearness of known photos that the classifier did not learn from, and the threshold that about
    `KEPT_SHARE` of them reach.

    Nearness is a relative Mahalanobis distance (Ren et al., 2021) with the opposite sign: the squared distance to the
    mean of all photos minus that to the nearest class mean. The covariances are those of all photos and those within
    classes. Features have unit length.
    """

    statistics: Statistics
    """Of the features of learned photos."""
    usual: Tensor
    """Mean and standard deviation of the logit of confidence, and of nearness: float64 `[2, 2]`."""
    threshold: float

    @classmethod
    def fitted(cls, features: Tensor, labels: Tensor, held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """From features `[N, d]` of trained photos, and probabilities `[n, C]` and features of held-out ones; None for
        too few."""
        values = unit_length(features.double().cpu())
        statistics = Statistics.empty(held_out[0].shape[1], values.shape[1]).added(values, labels.cpu())
        return cls(statistics, torch.zeros(2, 2), 0.0).calibrated(held_out)

    @classmethod
    def left_out(
        cls, statistics: Statistics, features: Tensor, labels: Tensor, probability: Tensor
    ) -> "Familiarity | None":
        """From the statistics of learned photos, and features `[n, d]`, labels `[n]` and left-out probabilities `[n,
        C]` of some of them; None if there are too few. Each photo's nearness is that to the other photos."""
        if len(features) < MIN_IMAGES:
            return None
        unset = cls(statistics, torch.zeros(2, 2), 0.0)
        return unset._with_usual(probability, unset._left_out_nearness(features, labels))

    def calibrated(self, held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """The familiarity with its usual values and threshold from held-out photos, given as probabilities and
        features; None if there are too few, or photos of fewer than two classes were learned."""
        if len(held_out[1]) < MIN_IMAGES or int((self.statistics.counts > 0).sum()) < 2:
            return None
        return self._with_usual(held_out[0], self.nearness(held_out[1]))

    def regrouped(self, groups: Sequence[Sequence[int]], held_out: tuple[Tensor, Tensor]) -> "Familiarity | None":
        """The familiarity for groups of the present classes, calibrated on held-out photos again."""
        return replace(self, statistics=self.statistics.regrouped(groups)).calibrated(held_out)

    def _with_usual(self, probability: Tensor, nearness: Tensor) -> "Familiarity":
        """With the usual values and the threshold of photos with these probabilities `[n, C]` and nearness `[n]`."""
        measured = torch.stack((_logit_of_confidence(probability), nearness))
        # Each photo is compared with the usual values of the others, as a new photo is.
        num_others = measured.shape[1] - 1
        means = (measured.sum(1, keepdim=True) - measured) / num_others
        around = measured - measured.mean(1, keepdim=True)
        squares = around.square().sum(1, keepdim=True) - around * (measured - means)
        deviations = (squares.clamp_min(0) / (num_others - 1)).sqrt()
        usual = torch.stack((measured.mean(1), measured.std(1)), 1)
        return replace(self, usual=usual, threshold=_threshold(_score(measured, means, deviations)))

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        """Cholesky factors `[d, d]` of the covariance within classes and of that of all photos."""
        whole = self.statistics.regrouped([range(self.statistics.num_classes)])
        return self.statistics.factor, whole.factor

    def _squared_distances(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distances `[N, C]` to class means and `[N]` to the mean of all photos, and the whitened features of
        the former."""
        values = unit_length(features.double().cpu())
        inner, outer = self._factors
        seen, means = _whitened(inner, values), _whitened(inner, self.statistics.means)
        squares = seen.square().sum(1, keepdim=True) + means.square().sum(1)
        to_class = torch.addmm(squares, seen, means.T, alpha=-2)
        to_class[:, self.statistics.counts == 0] = torch.inf
        centre = self.statistics.sums.sum(0) / self.statistics.num_images
        to_all = _whitened(outer, values - centre).square().sum(1)
        return to_class, to_all, seen

    def nearness(self, features: Tensor) -> Tensor:
        """The nearness of features `[N, d]` to the nearest class, float64 `[N]`."""
        to_class, to_all, _ = self._squared_distances(features)
        return to_all - to_class.amin(1)

    def _left_out_nearness(self, features: Tensor, labels: Tensor) -> Tensor:
        """As `nearness`, for photos that are in the statistics: each is left out of its own statistics.

        Without a photo at r from its class mean, that mean moves by r / (n - 1), and the inverse covariance grows: see
        `left_out_gain`. For the mean of all photos, all of them are one class.
        """
        to_class, to_all, seen = self._squared_distances(features)
        num_images, means = self.statistics.num_images, _whitened(self._factors[0], self.statistics.means)
        counts, rows = self.statistics.counts[labels].double(), torch.arange(len(labels))
        apart = seen - means[labels]
        length = to_class[rows, labels]
        gain = left_out_gain(counts, num_images, length)
        along = (apart * seen).sum(1, keepdim=True) - apart @ means.T
        to_class = to_class + gain[:, None] * along.square()
        to_class[rows, labels] = (counts / (counts - 1)).square() * (length + gain * length.square())
        everything = torch.tensor(float(num_images), dtype=torch.float64)
        gain = left_out_gain(everything, num_images, to_all)
        to_all = (everything / (everything - 1)).square() * (to_all + gain * to_all.square())
        return to_all - to_class.amin(1)

    def scores(self, probability: Tensor, features: Tensor) -> Tensor:
        """From 0 to 1, `[N]`, for probabilities `[N, C]` and features `[N, d]`: the geometric mean of the share of
        known photos that are less sure, and of the share that are less near to a class."""
        measured = torch.stack((_logit_of_confidence(probability), self.nearness(features)))
        return _score(measured, self.usual[:, :1], self.usual[:, 1:])

    def tensors(self, *, has_statistics: bool) -> dict[str, Tensor]:
        """The tensors for a bundle; without the statistics if the bundle has them elsewhere."""
        named = {"usual": self.usual, "threshold": torch.tensor(self.threshold, dtype=torch.float64)}
        if has_statistics:
            named |= {"counts": self.statistics.counts, "sums": self.statistics.sums}
            named |= {"second_moment": self.statistics.second_moment.float()}
        return {f"{PREFIX}{name}": value for name, value in named.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], statistics: Statistics | None) -> "Familiarity | None":
        """The familiarity that `tensors` wrote among the weights of a bundle; None if there is none. Raises DataError
        if its parts do not fit together."""
        named = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
        try:
            if statistics is None and named.keys() >= {"counts", "sums", "second_moment"}:
                sums, second_moment = named["sums"].double(), named["second_moment"].double()
                statistics = Statistics(named["counts"], sums, second_moment)
            if statistics is None or not named.keys() >= {"usual", "threshold"}:
                return None
            return cls(statistics, named["usual"].double().view(2, 2), float(named["threshold"]))
        except (ValueError, RuntimeError) as error:
            raise DataError(f"its test for unknown photos is damaged: {words_of(error)}") from None


def _whitened(factor: Tensor, values: Tensor) -> Tensor:
    """Values `[N, d]` in coordinates in which the covariance of this Cholesky factor is the identity."""
    coordinates: Tensor = torch.linalg.solve_triangular(factor, values.T, upper=False)
    return coordinates.T


def _logit_of_confidence(probability: Tensor) -> Tensor:
    return probability.double().cpu().amax(1).logit(eps=1e-6)


def _score(measured: Tensor, means: Tensor, deviations: Tensor) -> Tensor:
    """`[N]`, from confidences and nearnesses `[2, N]`: both are assumed to be normally distributed for known photos."""
    shares: Tensor = torch.special.log_ndtr((measured - means) / deviations.clamp_min(1e-6))
    return shares.mean(0).exp()


def _threshold(scores: Tensor) -> float:
    """The threshold that about `KEPT_SHARE` of new photos of known classes reach, from the scores `[n]` of a sample.

    On average, a share of k/(n + 1) of new scores is below the k-th smallest of n scores.
    """
    num_images = len(scores)
    position = (1 - KEPT_SHARE) * (num_images + 1) - 1
    return float(torch.quantile(scores, max(0.0, position / (num_images - 1))))
