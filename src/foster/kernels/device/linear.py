# mypy: ignore-errors
# ruff: noqa: SIM102  (the first of two conditions is decided when the kernel is compiled)
"""Products of small matrices in float32, with plain multiply-adds: tensor cores would round to TF32."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from foster.kernels.device.layouts import product_layout


@gluon.jit(do_not_specialize=["num_rows"])
def multiply(
    left, right, bias, result, left_sums, num_rows, num_columns, num_terms,
    left_row_stride, left_term_stride, right_term_stride, right_column_stride,
    rows: gl.constexpr, columns: gl.constexpr, terms: gl.constexpr, is_along_terms: gl.constexpr, warps: gl.constexpr,
    is_early: gl.constexpr,
):  # fmt: skip
    """One program computes `rows` x `columns` of result = left [num_rows, num_terms] x right [num_terms, num_columns],
    plus bias [num_columns], and the row sums of left, left_sums [num_rows]. bias and left_sums may be None.

    `is_along_terms`: both factors are contiguous along the terms; otherwise right is contiguous along its columns. The
    result is contiguous. Each element has `terms` accumulators, one for every `terms`-th term, which are added at the
    end, so the order of summation is fixed.
    """
    if is_early:
        gdc_wait()
    held: gl.constexpr = product_layout(is_along_terms, warps)
    row = gl.program_id(0) * rows + gl.arange(0, rows, layout=gl.SliceLayout(1, gl.SliceLayout(1, held)))
    column = gl.program_id(1) * columns + gl.arange(0, columns, layout=gl.SliceLayout(1, gl.SliceLayout(0, held)))
    left_term = gl.arange(0, terms, layout=gl.SliceLayout(0, gl.SliceLayout(1, held)))
    right_term = gl.arange(0, terms, layout=gl.SliceLayout(0, gl.SliceLayout(0, held)))
    left_row = left + (row * left_row_stride)[:, None]
    right_column = right + (column * right_column_stride)[:, None]
    sums = gl.zeros([rows, columns, terms], gl.float32, held)
    sums_of_left = gl.zeros([rows, terms], gl.float32, gl.SliceLayout(1, held))
    for start in range(0, num_terms, terms):
        term = start + left_term
        is_there = (row < num_rows)[:, None] & (term < num_terms)[None, :]
        x = gl.load(left_row + (term * left_term_stride)[None, :], mask=is_there, other=0.0)
        term = start + right_term
        is_there = (column < num_columns)[:, None] & (term < num_terms)[None, :]
        y = gl.load(right_column + (term * right_term_stride)[None, :], mask=is_there, other=0.0)
        sums += x[:, None, :] * y[None, :, :]
        if left_sums is not None:
            sums_of_left += x

    total = gl.sum(sums, axis=2)
    written: gl.constexpr = gl.SliceLayout(2, held)
    column = gl.program_id(1) * columns + gl.arange(0, columns, layout=gl.SliceLayout(0, written))
    if bias is not None:
        total += gl.load(bias + column, mask=column < num_columns, other=0.0)[None, :]
    out_row = gl.program_id(0) * rows + gl.arange(0, rows, layout=gl.SliceLayout(1, written))
    is_there = (out_row < num_rows)[:, None] & (column < num_columns)[None, :]
    gl.store(result + (out_row * num_columns)[:, None] + column[None, :], total, mask=is_there)
    if left_sums is not None:
        if gl.program_id(1) == 0:
            gl.store(left_sums + row, gl.sum(sums_of_left, axis=1), mask=row < num_rows)
