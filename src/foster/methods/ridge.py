"""Ridge regression on random features of a frozen backbone (ACIL, NeurIPS 2022; RanPAC, NeurIPS 2023)."""

from collections.abc import Sequence

from foster.methods.closed_form import ClosedForm
from foster.networks.closed_form import RidgeHead
from foster.seeding import Address
from foster.settings.methods import RidgeSettings


class RandomFeatureRidge(ClosedForm[RidgeSettings]):
    """Ridge regression of labels 0 and 1 on h = ReLU(phi R + b), where R and b are drawn once from the seed.

    The papers solve it recursively or after each task. Both give the solution for all images so far, as here.
    """

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> RidgeHead:
        settings, address = self.settings, Address(self.context.seed, "random features")
        return RidgeHead(in_features, sum(task_sizes), settings.num_features, settings.penalty, address)
