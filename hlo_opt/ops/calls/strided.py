"""A dot as calls of cublasGemmStridedBatchedEx on its operands as they lie: how many there are, and where each begins.

Who runs these calls and who prices them both ask here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.library.arrays import Described
from hlo_opt.ops.calls.call import DeviceCall

_MOST = 2**31 - 1
"""cuBLAS counts rows, columns and leading dimensions in 32 bits."""
MOST_CALLS = 8
"""The most calls for one dot, whose batch dimensions do not follow one another in some array."""


@dataclass(frozen=True)
class _Axis:
    """Dimensions of an array that one index walks: their elements, and elements from one to the next."""

    size: int
    step: int


@dataclass(frozen=True)
class _Matrix:
    """How cuBLAS reads a matrix: as it stands row by row (or column by column), with elements between them, and between
    those of the batch."""

    is_turned: bool
    step: int
    batch: int


@dataclass(frozen=True)
class Product:
    """[batch, m, k] x [batch, k, n] -> [batch, m, n], row by row, as calls of cublasGemmStridedBatchedEx.

    is_swapped  a call multiplies the transposed operands in the other order, because the result lies column by column;
                then `left` is the second operand
    is_rounded  operands of f32 are rounded to TF32
    starts      of each call, the elements before those of the left matrix, the right one and the result
    """

    types: tuple[str, str]
    batch: int
    sizes: tuple[int, int, int]
    left: _Matrix
    right: _Matrix
    step: int
    step_of_batch: int
    is_swapped: bool
    is_rounded: bool
    starts: tuple[tuple[int, int, int], ...]


def product_of(call: DeviceCall) -> Product | None:
    """A dot as a few calls of cuBLAS on its operands as they lie; None where one of them must be copied first, and for
    other calls."""
    if call.function != "gemm_call":
        return None
    left, right, result = call.shapes
    (left_batch, right_batch), (left_sum, right_sum), *precision = call.arguments
    left_free = [d for d in range(len(left[2])) if d not in left_batch and d not in left_sum]
    right_free = [d for d in range(len(right[2])) if d not in right_batch and d not in right_sum]
    batch, rows, columns = len(left_batch), len(left_free), len(right_free)
    out = range(batch + rows + columns)
    arrays = (left, left_batch), (right, right_batch), (result, out[:batch])
    row, column, length = (
        _axes((left, left_free), (result, out[batch : batch + rows])),
        _axes((right, right_free), (result, out[batch + rows :])),
        _axes((left, left_sum), (right, right_sum)),
    )
    if row is None or column is None or length is None:
        return None
    (m, m_out), (n, n_out), (k, k_right) = row, column, length
    for apart in (None, *sorted(range(batch), key=lambda at: left[2][left_batch[at]])):
        within = [(shape, [d for at, d in enumerate(dimensions) if at != apart]) for shape, dimensions in arrays]
        alone = [(shape, [] if apart is None else [dimensions[apart]]) for shape, dimensions in arrays]
        axes, outer = _axes(*within), _axes(*alone)
        if axes is not None and outer is not None and outer[0].size <= MOST_CALLS:
            break
    else:
        return None
    b, b_right, b_out = axes
    if 0 in (b.size, m.size, n.size, k.size, outer[0].size):
        return None
    one, other, target = _matrix(m, k, b), _matrix(k_right, n, b_right), _matrix(m_out, n_out, b_out)
    steps = [axis.step for axis in outer]
    is_swapped = target is not None and target.is_turned
    if is_swapped:  # the transposed product, row by row
        one, other = _matrix(n, k_right, b_right), _matrix(k, m, b)
        m, n = n, m
        steps = [steps[1], steps[0], steps[2]]
    if one is None or other is None or target is None or max(b.size, m.size, n.size, k.size) > _MOST:
        return None
    starts = tuple((at * steps[0], at * steps[1], at * steps[2]) for at in range(outer[0].size))
    types, sizes = (left[0], result[0]), (m.size, n.size, k.size)
    return Product(types, b.size, sizes, one, other, target.step, target.batch, is_swapped, bool(precision), starts)


def _axes(*of: tuple[Described, Sequence[int]]) -> tuple[_Axis, ...] | None:
    """The same dimensions of several arrays as one axis of each; None where they do not follow one another in all."""
    lists = []
    for (_, _, sizes, minor_to_major), dimensions in of:
        steps, step = {}, 1
        for d in minor_to_major:
            steps[d] = step
            step *= sizes[d]
        lists.append([_Axis(sizes[d], steps[d]) for d in dimensions])
    total = math.prod(axis.size for axis in lists[0])
    places = [n for n, axis in enumerate(lists[0]) if axis.size > 1]
    places.sort(key=lambda n: -lists[0][n].step)
    merged = []
    for axes in lists:
        for outer, inner in itertools.pairwise(places):
            if total and axes[outer].step != axes[inner].step * axes[inner].size:
                return None
        merged.append(_Axis(total, axes[places[-1]].step if places else 1))
    return tuple(merged)


def _matrix(rows: _Axis, columns: _Axis, batch: _Axis) -> _Matrix | None:
    """How cuBLAS reads it; None where neither rows nor columns are contiguous."""
    across = batch.step if batch.size > 1 else 0
    for is_turned, outer, inner in ((False, rows, columns), (True, columns, rows)):
        step = outer.step if outer.size > 1 else inner.size
        if (inner.size == 1 or inner.step == 1) and inner.size <= step <= _MOST:
            return _Matrix(is_turned, step, across)
    return None
