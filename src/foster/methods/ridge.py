"""Ridge regression on random features of a frozen backbone (ACIL, NeurIPS 2022; RanPAC, NeurIPS 2023)."""

from foster.methods.closed_form import RandomFeatures


class RandomFeatureRidge(RandomFeatures):
    """Labels of 0 and 1 are regressed on h = ReLU(phi R + b), with R and b drawn once from the seed.

    The papers solve it recursively or after each task; both are the solution for all images so far, as here.
    """
