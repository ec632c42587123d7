"""SLDA: deep streaming linear discriminant analysis (CVPR workshops 2020)."""

from collections.abc import Sequence

from foster.methods.closed_form import ClosedForm
from foster.networks.closed_form import DiscriminantHead
from foster.settings.methods import SldaSettings


class StreamingDiscriminants(ClosedForm[SldaSettings]):
    """Linear discriminants of frozen features, computed from class means and the covariance within classes."""

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> DiscriminantHead:
        return DiscriminantHead(in_features, sum(task_sizes), self.settings.shrinkage)
