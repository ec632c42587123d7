"""What runs on the GPU, in Gluon (Triton's language with explicit layouts). Imported only where Triton is."""

from foster.kernels.device.convolution import convolve
from foster.kernels.device.gradient import sum_partial_sums, weight_gradient

__all__ = ["convolve", "sum_partial_sums", "weight_gradient"]
