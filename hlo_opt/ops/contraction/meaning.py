"""The NumPy evaluators of dot, ragged-dot, scaled-dot and convolution."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.values import Array, DType
from hlo_opt.library import products
from hlo_opt.ops.contraction.table import DotDimensions, convolution_dimensions
from hlo_opt.ops.reduction.reducers import running_type
from hlo_opt.ops.spec import Evaluator


def _wide(element_type: ElementType) -> DType:
    """The accumulator type."""
    if element_type.is_integer and element_type.bits < 32:
        return np.dtype(np.int64 if element_type.kind == "signed" else np.uint64)
    return running_type(element_type).dtype


_EXACT = 1 << 53
"""f64 represents every integer up to this."""


def _product(lhs: Array, rhs: Array, operands: list[ElementType], result: ElementType) -> Array:
    """[batch, m, k] x [batch, k, n] in the accumulator type."""
    wide = _wide(result)
    if result.is_integer and all(t.is_integer for t in operands):
        product = _integer_product(lhs, rhs, wide)
        if product is not None:
            return product
    return np.matmul(lhs.astype(wide), rhs.astype(wide))


def _integer_product(lhs: Array, rhs: Array, wide: DType) -> Array | None:
    """An integer product by f64 matmuls, which have a fast library; None where no such product is exact.

    One matmul where all sums fit f64, else three of 16-bit halves for 32-bit integers.
    """
    if not lhs.size or not rhs.size:
        return None
    bound = lhs.shape[-1] * _size(lhs) * _size(rhs)
    if bound <= _EXACT:
        return np.matmul(lhs.astype(np.float64), rhs.astype(np.float64)).astype(np.int64).astype(wide)
    if wide.itemsize != 4 or lhs.shape[-1] << 33 > _EXACT:
        return None
    halves = [[(x & 0xFFFF).astype(np.float64), ((x >> 16) & 0xFFFF).astype(np.float64)] for x in (lhs, rhs)]
    (low, high), (other_low, other_high) = halves
    middle = (np.matmul(low, other_high) + np.matmul(high, other_low)).astype(np.int64)
    return (np.matmul(low, other_low).astype(np.int64) + (middle << 16)).astype(wide)


def _size(value: Array) -> int:
    """The largest absolute value."""
    return max(abs(int(value.max())), abs(int(value.min())))


def matrices(dims: DotDimensions, lhs: Array, rhs: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """The operands as [batch, m, k] and [batch, k, n], and the dimensions of the result."""
    batch, contracting = (dims.lhs_batch, dims.rhs_batch), (dims.lhs_contracting, dims.rhs_contracting)
    left, right, sizes = products.matrices(lhs, rhs, batch, contracting)
    return left, right, tuple(sizes)


def dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    lhs, rhs = np.asarray(values[0]), np.asarray(values[1])
    left, right, sizes = matrices(DotDimensions.of(instruction), lhs, rhs)
    types = [o.shape.type for o in instruction.operands[:2]]
    product = _product(left, right, types, instruction.shape.type).reshape(sizes)
    dtype = instruction.shape.type.dtype
    return product if product.dtype == dtype else product.astype(dtype)


def scaled_dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """A dot of operands multiplied by scales, one per block of elements. A scalar scale applies to all."""
    arrays = [np.asarray(v) for v in values]
    scaled = []
    for value, scale in zip(arrays[:2], [*arrays[2:], None, None][:2], strict=True):
        wide = value.astype(np.float32)
        if scale is not None:
            spread = scale.astype(np.float32)
            for axis, size in enumerate(value.shape if spread.ndim else ()):
                spread = np.repeat(spread, size // spread.shape[axis], axis=axis)
            wide = wide * spread
        scaled.append(wide)
    left, right, sizes = matrices(DotDimensions.of(instruction), *scaled)
    return np.matmul(left, right).reshape(sizes).astype(instruction.shape.type.dtype)


def ragged_dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """A dot whose lhs rows are in groups of given sizes: each group has its own rhs matrix, or its own result.

    Source: the definition of jax.lax.ragged_dot_general, from which XLA's operation derives. Supports one ragged
    dimension that is not a batch dimension. Raises ValueError for other cases.
    """
    lhs, rhs, sizes = (np.asarray(v) for v in values)
    dims = DotDimensions.of(instruction)
    ragged = instruction.ints("lhs_ragged_dims")[0]
    groups = instruction.ints("rhs_group_dims")
    if sizes.ndim != 1:
        raise ValueError("ragged-dot with one list of group sizes per batch element is not evaluated")
    ends = np.cumsum(sizes.astype(np.int64))
    wide = _wide(instruction.shape.type)
    output = np.zeros(instruction.shape.dimensions, dtype=wide)
    if ragged in dims.lhs_batch:
        raise ValueError("ragged-dot over a batch dimension is not evaluated")
    for group, end in enumerate(ends):
        rows = np.s_[int(end - sizes[group]) : int(end)]
        part = np.take(lhs, range(rows.start, min(rows.stop, lhs.shape[ragged])), axis=ragged)
        if ragged in dims.lhs_contracting:
            other = dims.rhs_contracting[dims.lhs_contracting.index(ragged)]
            matching = np.take(rhs, range(rows.start, min(rows.stop, rhs.shape[other])), axis=other)
            left, right, shape = matrices(dims, part, matching)
            output[group] = np.matmul(left.astype(wide), right.astype(wide)).reshape(shape)
            continue
        weights = np.take(rhs, group, axis=groups[0])
        shifted = DotDimensions(
            dims.lhs_batch,
            tuple(d - (d > groups[0]) for d in dims.rhs_batch),
            dims.lhs_contracting,
            tuple(d - (d > groups[0]) for d in dims.rhs_contracting),
        )
        left, right, shape = matrices(shifted, part, weights)
        axis = len(dims.lhs_batch) + dims.free(lhs.ndim, right=False).index(ragged)
        to = (slice(None),) * axis + (slice(rows.start, rows.start + part.shape[ragged]),)
        output[to] = np.matmul(left.astype(wide), right.astype(wide)).reshape(shape)
    return output.astype(instruction.shape.type.dtype)


UNFOLDED = 1 << 26
"""Bytes of windows copied for one matrix product. Larger is better: each product synchronises the threads of NumPy's
library, which costs more than the sums where another process uses the cores."""


def convolution(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    c = convolution_dimensions(instruction)
    element_type = instruction.shape.type
    wide = _wide(element_type)
    if element_type.is_integer or element_type.kind == "pred":
        types = [o.shape.type for o in instruction.operands[:2]]
        is_small = all(t.is_integer and t.bits <= 8 for t in types)  # sums of products are exact in f64
        wide = np.dtype(np.float64 if is_small else np.int64)
    lhs, rhs = (np.asarray(value) for value in values[:2])
    output = products.convolution(np, lhs, rhs, instruction.shape.dimensions, *c.described, wide.name, UNFOLDED)
    return output.astype(element_type.dtype)
