"""3x3 convolutions for the narrow networks of small images, faster than the library's. Optional: they need Triton."""

from foster.kernels.conv3x3 import conv3x3, is_available, supports
from foster.kernels.modules import use_kernels

__all__ = ["conv3x3", "is_available", "supports", "use_kernels"]
