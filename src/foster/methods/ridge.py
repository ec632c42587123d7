"""Ridge regression on random features of a frozen backbone (ACIL, NeurIPS 2022; RanPAC, NeurIPS 2023)."""

from foster.methods.closed_form import RandomFeatures


class RandomFeatureRidge(RandomFeatures):
    """Ridge regression of labels 0 and 1 on h = ReLU(phi R + b), where R and b are drawn once from the seed.

    The papers solve it recursively or after each task. Both give the solution for all images so far, as here.
    """
