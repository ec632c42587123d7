"""SLDA: deep streaming linear discriminant analysis (CVPR workshops 2020)."""

from foster.methods.closed_form import ClosedForm
from foster.networks.closed_form import DiscriminantHead
from foster.settings.methods import SldaSettings


class StreamingDiscriminants(ClosedForm[SldaSettings]):
    """Linear discriminants of frozen features, from class means and the covariance within classes."""

    def closed_form_head(self, in_features: int, num_classes: int) -> DiscriminantHead:
        return DiscriminantHead(in_features, num_classes, self.settings.shrinkage)
