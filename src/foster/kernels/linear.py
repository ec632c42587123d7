"""A small linear layer in float32 as an autograd function: three launches forward and backward, where torch needs ten.
The result is as exact as torch's without TF32.

On an H200 it saves 5.1 % of a boost step and 3.0 % of a compress step (ResNet-32, batch 128: 1.079 and 1.088 ms with
it, 1.134 and 1.121 ms without).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foster.kernels.compilation import start

MOST_SIZE = 1024
MOST_PRODUCTS = 2**24
"""The largest size, and the largest number of multiplications. For larger ones, arithmetic takes longer than
the launches, and torch is faster."""


def supports_linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether `linear` accepts features [N, in], weight [out, in] and bias [out]: all must be float32 and small."""
    tensors = [features, weight] if bias is None else [features, weight, bias]
    if any(tensor.dtype is not torch.float32 for tensor in tensors) or (features.ndim, weight.ndim) != (2, 2):
        return False
    sizes: tuple[int, ...] = (*features.shape, len(weight))
    return min(sizes) > 0 and max(sizes) <= MOST_SIZE and math.prod(sizes) <= MOST_PRODUCTS


def linear(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """features x weight^T + bias, [N, out], with first-order gradients only."""
    output: Tensor = _Linear.apply(features, weight, bias)  # type: ignore[no-untyped-call]
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        features, weight = features.contiguous(), weight.contiguous()
        ctx.save_for_backward(features, weight)
        bias = None if bias is None else bias.contiguous()
        return _product(_Matrix(features), _Matrix(weight).transposed(), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        needs_features, needs_weight, needs_bias = ctx.needs_input_grad
        gradient = gradient.contiguous()
        of_features = of_weight = of_bias = None
        if needs_bias:
            of_bias = torch.empty(len(weight), dtype=gradient.dtype, device=gradient.device)
        if needs_weight or needs_bias:
            of_weight = _product(_Matrix(gradient).transposed(), _Matrix(features), left_sums=of_bias)
        if needs_features:
            of_features = _product(_Matrix(gradient), _Matrix(weight))
        return of_features, of_weight if needs_weight else None, of_bias


class _Matrix(NamedTuple):
    """A contiguous tensor [rows, columns], or its transpose."""

    tensor: Tensor
    is_transposed: bool = False

    def transposed(self) -> "_Matrix":
        return self._replace(is_transposed=not self.is_transposed)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.tensor.shape
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def strides(self) -> tuple[int, int]:
        # torch's strides are arbitrary for a dimension of size 1.
        columns = self.tensor.shape[1]
        return (1, columns) if self.is_transposed else (columns, 1)


class ProductTile(NamedTuple):
    """The tile of one program of 4 warps: `rows` x `columns` of the product, summed over `terms` at a time."""

    rows: int
    columns: int
    terms: int


ALONG_TERMS = ProductTile(rows=8, columns=8, terms=128)
ALONG_COLUMNS = ProductTile(rows=4, columns=32, terms=64)
"""The tile for right factors that are contiguous along the summed dimension, and the tile for those contiguous along
their columns. Few rows and columns spread the small result over many programs; many terms keep enough loads in flight
that a launch takes only one or two round trips to memory."""


def _product(left: _Matrix, right: _Matrix, bias: Tensor | None = None, left_sums: Tensor | None = None) -> Tensor:
    """left x right, plus a bias for each column. The row sums of `left` are written to `left_sums`, if given."""
    num_rows, num_terms = left.shape
    num_columns = right.shape[1]
    result = torch.empty((num_rows, num_columns), dtype=torch.float32, device=left.tensor.device)
    is_along_terms = right.is_transposed
    tile = ALONG_TERMS if is_along_terms else ALONG_COLUMNS
    start(
        "multiply",
        (math.ceil(num_rows / tile.rows), math.ceil(num_columns / tile.columns)),
        left.tensor,
        right.tensor,
        bias,
        result,
        left_sums,
        num_rows,
        num_columns,
        num_terms,
        *left.strides,
        *right.strides,
        **tile._asdict(),
        is_along_terms=is_along_terms,
        warps=4,
        num_warps=4,
    )
    return result
