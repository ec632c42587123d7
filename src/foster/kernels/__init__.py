"""Kernels for the narrow networks of small images, faster than the library's: 3x3 convolutions, whole residual blocks
of them, and the linear layers of heads. Optional: they need Triton."""

from foster.kernels.compilation import compiled_side_by_side, is_available
from foster.kernels.modules import drop_kernels, is_fused, use_kernels
from foster.kernels.tiles import supports
from foster.kernels.weight_gradients import DeferredGradients, ReadTooEarlyError

__all__ = [
    "DeferredGradients",
    "ReadTooEarlyError",
    "compiled_side_by_side",
    "drop_kernels",
    "is_available",
    "is_fused",
    "supports",
    "use_kernels",
]
