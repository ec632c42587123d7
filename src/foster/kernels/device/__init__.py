"""The kernels, written in Triton and in Gluon (Triton's language with explicit layouts). Importing this needs
Triton."""

from foster.kernels.device import operations
from foster.kernels.device.convolution import convolve
from foster.kernels.device.gradient import sum_partial_sums, weight_gradients
from foster.kernels.device.linear import multiply
from foster.kernels.device.normalisation import (
    finish_gradient,
    finish_statistics,
    normalise,
    pass_gradient,
    sum_gradient,
)

__all__ = [
    "convolve",
    "finish_gradient",
    "finish_statistics",
    "multiply",
    "normalise",
    "operations",
    "pass_gradient",
    "sum_gradient",
    "sum_partial_sums",
    "weight_gradients",
]
