"""A dot as calls of cublasGemmStridedBatchedEx on its operands as they lie: how many there are, and where each begins.

Who runs these calls and who prices them both ask here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.library.arrays import Described
from hlo_opt.ops.calls.call import TF32, DeviceCall

_MOST = 2**31 - 1
"""cuBLAS counts rows, columns and leading dimensions in 32 bits."""
MOST_CALLS = 32
"""The most calls for one dot, whose batch dimensions do not follow one another in some array."""
FEW_BITS = ("f32", "f16", "bf16")
"""Types of operands that cuBLASLt takes here, and of listed matrices."""
LEAST_LISTED = 8
"""The least rows and columns of listed matrices: products with vectors are calls apart, or kernels."""
MOST_LISTED = 1 << 16
"""The most matrices of a list."""
LISTED_ALIGNMENT = 16
"""Bytes that the addresses of listed matrices are multiples of."""
LEAST_ROWS = 32
"""The least rows (or columns) that are left to each matrix where others number the matrices of a batch: products of
smaller ones take longer than the copy that makes one large product of them."""


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
class StridedProduct:
    """[batch, m, k] x [batch, k, n] -> [batch, m, n], row by row, as calls of cublasGemmStridedBatchedEx, or as one of
    cublasGemmBatchedEx.

    is_swapped  a call multiplies the transposed operands in the other order, because the result lies column by column;
                then `left` is the second operand
    is_rounded  operands of f32 are rounded to TF32
    epilogue    what follows in the same call, as XLA:GPU names it: a bias, an activation; then there is one start
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
    epilogue: str = ""

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added: a number for each column."""
        return self.epilogue.startswith("BIAS")

    @property
    def bytes_of_bias(self) -> int:
        """Bytes of the bias; 0 without one."""
        return self.sizes[1] * ELEMENT_TYPES[self.types[1]].bytes if self.has_bias else 0

    @property
    def bytes(self) -> tuple[int, int, int]:
        """From the first byte to the last one of the left matrices, the right ones and the result, of one call."""
        rows, columns, length = self.sizes
        operand, result = (ELEMENT_TYPES[name].bytes for name in self.types)
        left, right = self.left, self.right
        return (
            operand * _extent(self.batch, left.batch, left.step, *_turned((rows, length), left.is_turned)),
            operand * _extent(self.batch, right.batch, right.step, *_turned((length, columns), right.is_turned)),
            result * _extent(self.batch, self.step_of_batch, self.step, rows, columns),
        )

    @property
    def bytes_before(self) -> tuple[tuple[int, ...], ...]:
        """`starts` in bytes."""
        sizes = [ELEMENT_TYPES[name].bytes for name in (self.types[0], *self.types)]
        return tuple(tuple(n * size for n, size in zip(before, sizes, strict=True)) for before in self.starts)

    @property
    def is_listed(self) -> bool:
        """Whether one call does all, by a list of the addresses of all matrices (cublasGemmBatchedEx): they must lie at
        multiples of 16 bytes, as cuBLAS does not see addresses that are on the device."""
        is_small = min(self.sizes[:2]) < LEAST_LISTED
        if len(self.starts) == 1 or is_small or self.types[0] not in FEW_BITS:
            return False
        if self.batch * len(self.starts) > MOST_LISTED:
            return False
        operand, result = (ELEMENT_TYPES[name].bytes for name in self.types)
        steps = (self.left.batch * operand, self.right.batch * operand, self.step_of_batch * result)
        return not any(n % LISTED_ALIGNMENT for n in (*steps, *itertools.chain(*self.bytes_before)))

    @property
    def calls(self) -> int:
        """How many calls of the library it is."""
        return 1 if self.is_listed else len(self.starts)


def _turned(sizes: tuple[int, int], is_turned: bool) -> tuple[int, int]:
    return sizes[::-1] if is_turned else sizes


def _extent(count: int, batch: int, step: int, outer: int, inner: int) -> int:
    """Elements from the first to the last one of matrices with rows of `inner` elements."""
    return (count - 1) * batch + (outer - 1) * step + inner


def product_of(call: DeviceCall) -> StridedProduct | None:
    """A dot as a few calls of cuBLAS on its operands as they lie; None where one of them must be copied first, and for
    other calls."""
    if call.function != "gemm_call":
        return None
    (left_batch, right_batch), (left_sum, right_sum), *more = call.arguments
    epilogue = more[1] if len(more) > 1 else ""
    (left, right, *_), result = call.shapes, call.shapes[2 + epilogue.startswith("BIAS")]
    left_free = [d for d in range(len(left[2])) if d not in left_batch and d not in left_sum]
    right_free = [d for d in range(len(right[2])) if d not in right_batch and d not in right_sum]
    own, out = [_axes_of(shape) for shape in (left, right, result)], len(left_batch) + len(left_free)

    def index(in_left: int | None, in_right: int | None, in_result: int | None) -> _Index:
        places = (in_left, in_right, in_result)
        axes = [None if d is None else of[d] for of, d in zip(own, places, strict=True)]
        size = next(axis.size for axis in axes if axis is not None)
        return tuple(axis or _Axis(size, 0) for axis in axes)

    batch = [index(d, e, at) for at, (d, e) in enumerate(zip(left_batch, right_batch, strict=True))]
    rows = [index(d, None, len(left_batch) + at) for at, d in enumerate(left_free)]
    columns = [index(None, d, out + at) for at, d in enumerate(right_free)]
    sums = [index(d, e, None) for d, e in zip(left_sum, right_sum, strict=True)]
    for many, kept_rows, kept_columns in _divided(rows, columns):
        product = _multiplied([*batch, *many], kept_rows, kept_columns, sums)
        if product is not None:
            types = (left[0], result[0])
            product = replace(product, types=types, is_rounded=TF32 in more, epilogue=epilogue)
            return product if not epilogue or _finishes(product, call.shapes) else None
    return None


def copied_bytes(call: DeviceCall) -> list[int]:
    """Bytes of each array that the library's own way of a dot (`library.products.gemm_call`) copies, where the dot is
    no `StridedProduct`: operands that are no matrices as they lie, and a result that does not lie row by row."""
    batch, contracting, *_ = call.arguments
    result = call.shapes[-1]
    copied = [s for s, b, c in zip(call.shapes[:2], batch, contracting, strict=True) if not _is_matrix(s, b, c)]
    if _followed(_in_order(result, range(len(result[2])))) is None:
        copied.append(result)
    return [math.prod(shape[2]) * ELEMENT_TYPES[shape[0]].bytes for shape in copied]


def _is_matrix(shape: Described, batch: Sequence[int], contracting: Sequence[int]) -> bool:
    """Whether batch, free and contracting dimensions of an operand, in this order, are one dimension each, and one of
    the latter two is contiguous."""
    free = [d for d in range(len(shape[2])) if d not in batch and d not in contracting]
    parts = [_followed(_in_order(shape, dims)) for dims in (batch, free, contracting)]
    if any(part is None for part in parts):
        return False
    across, rows, columns = (part for part in parts if part is not None)
    return _matrix(rows, columns, across) is not None


def _in_order(shape: Described, dims: Sequence[int]) -> list[_Axis]:
    axes = _axes_of(shape)
    return [axes[d] for d in dims]


def _followed(axes: Sequence[_Axis]) -> _Axis | None:
    """Axes, outer ones first, as one; None where they do not follow one another."""
    walked = [axis for axis in axes if axis.size > 1]
    if any(a.step != b.step * b.size for a, b in itertools.pairwise(walked)):
        return None
    return _Axis(math.prod(axis.size for axis in walked), walked[-1].step if walked else 1)


def _finishes(product: StridedProduct, shapes: Sequence[Described]) -> bool:
    """Whether what follows is about the columns of one call as cuBLAS writes them: a bias is one row."""
    if len(product.starts) > 1 or product.types[0] not in FEW_BITS:
        return False
    if not product.has_bias:
        return True
    (*_, sizes, order), (_, _, of_result, result_order) = shapes[2:4]
    rank = len(sizes)
    last = tuple(reversed(range(len(of_result))))[:rank]
    return (
        math.prod(sizes) == product.sizes[1]
        and order == tuple(reversed(range(rank)))
        and result_order[:rank] == last
        and sizes == of_result[len(of_result) - rank :]
    )


_Index = tuple[_Axis, ...]
"""What walks left, right and result together: of an array that it does not walk, the step is 0."""


def _axes_of(shape: Described) -> dict[int, _Axis]:
    """The axis of each dimension."""
    axes, step = {}, 1
    for d in shape[3]:
        axes[d] = _Axis(shape[2][d], step)
        step *= shape[2][d]
    return axes


def _divided(
    rows: list[_Index], columns: list[_Index]
) -> Iterator[tuple[Sequence[_Index], Sequence[_Index], Sequence[_Index]]]:
    """Free indices as those of a batch, rows and columns. All are rows and columns, if possible; else the outermost of
    one operand number the matrices of a batch, for all of which the other operand is the same."""
    yield (), rows, columns
    for free, side in ((rows, 0), (columns, 1)):
        outermost = sorted((i for i in free if i[side].size > 1), key=lambda i: -i[side].step)
        for count in range(1, len(outermost)):
            many = outermost[:count]
            kept = [i for i in free if i not in many]
            if math.prod(i[side].size for i in kept) < LEAST_ROWS:
                break
            yield (many, kept, columns) if side == 0 else (many, rows, kept)


def _multiplied(
    batch: Sequence[_Index], rows: Sequence[_Index], columns: Sequence[_Index], sums: Sequence[_Index]
) -> StridedProduct | None:
    """The product over these indices; None where cuBLAS cannot read or write the arrays as they lie."""
    row, column, length = _merged(rows), _merged(columns), _merged(sums)
    if row is None or column is None or length is None:
        return None
    (m, _, m_out), (_, n, n_out), (k, k_right, _) = row, column, length
    for apart in (None, *sorted(range(len(batch)), key=lambda at: batch[at][0].size)):
        axes = _merged([i for at, i in enumerate(batch) if at != apart])
        outer = _merged([] if apart is None else [batch[apart]])
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
    sizes = (m.size, n.size, k.size)
    return StridedProduct(("", ""), b.size, sizes, one, other, target.step, target.batch, is_swapped, False, starts)


def _merged(indices: Sequence[_Index]) -> _Index | None:
    """Several indices as one; None where they do not follow one another in all arrays."""
    total = math.prod(i[0].size for i in indices)
    walked = sorted((i for i in indices if i[0].size > 1), key=lambda i: [-axis.step for axis in i])
    for outer, inner in itertools.pairwise(walked):
        if total and any(a.step != b.step * b.size for a, b in zip(outer, inner, strict=True)):
            return None
    return tuple(_Axis(total, axis.step) for axis in walked[-1]) if walked else (_Axis(total, 1),) * 3


def _matrix(rows: _Axis, columns: _Axis, batch: _Axis) -> _Matrix | None:
    """How cuBLAS reads it; None where neither rows nor columns are contiguous."""
    across = batch.step if batch.size > 1 else 0
    for is_turned, outer, inner in ((False, rows, columns), (True, columns, rows)):
        step = outer.step if outer.size > 1 else inner.size
        if (inner.size == 1 or inner.step == 1) and inner.size <= step <= _MOST:
            return _Matrix(is_turned, step, across)
    return None
