# mypy: ignore-errors
"""ReLU."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def relu(x):
    """max(x, 0), but what is not a number stays so: a training that has gone wrong must show in its loss."""
    return gl.where(x < 0.0, 0.0, x)
