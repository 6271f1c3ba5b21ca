"""Elimination over an array module `xp`, NumPy or CuPy: what the NumPy meaning of LU factorizations, CuPy calls and emitted drivers share.

The text of these functions is also what an emitted driver contains, so they use nothing but their arguments.
"""

from __future__ import annotations

from types import ModuleType

from hlo_opt.ir.values import Array


def eliminated(xp: ModuleType, matrices: Array) -> tuple[Array, Array, Array]:
    """PA = LU of matrices [batch, rows, columns], which are overwritten: (L and U, rows swapped in turn counted from 1, the first zero pivot counted from 1 or 0)."""
    batch, rows, columns = matrices.shape
    steps = min(rows, columns)
    pivots = xp.zeros((batch, steps), "int32")
    state = xp.zeros(batch, "int32")
    every = xp.arange(batch)
    for k in range(steps):
        column = matrices[:, k:, k]
        chosen = k + xp.argmax(xp.abs(column.real) + xp.abs(column.imag), axis=1)
        pivots[:, k] = chosen + 1
        swapped = matrices[every, chosen].copy()
        matrices[every, chosen] = matrices[:, k].copy()
        matrices[:, k] = swapped
        zero = matrices[:, k, k] == 0
        state = xp.where((state == 0) & zero, k + 1, state)
        matrices[:, k + 1 :, k] /= xp.where(zero, 1, matrices[:, k, k])[:, None]
        matrices[:, k + 1 :, k + 1 :] -= matrices[:, k + 1 :, k, None] * matrices[:, None, k, k + 1 :]
    return matrices, pivots, state


def swapped_order(xp: ModuleType, pivots: Array, count: int) -> Array:
    """The order of `count` rows after swapping row k with row pivots[k], counted from 0, for each k in turn; pivots [batch, swaps]."""
    pivots = pivots.astype("int64")
    order = xp.zeros((len(pivots), count), "int64") + xp.arange(count)
    every = xp.arange(len(pivots))
    for k in range(pivots.shape[1]):
        swapped = order[every, pivots[:, k]].copy()
        order[every, pivots[:, k]] = order[:, k].copy()
        order[:, k] = swapped
    return order
