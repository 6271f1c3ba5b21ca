"""The NumPy meaning of dot, ragged-dot, scaled-dot and convolution."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.values import Array, DType
from hlo_opt.library import products
from hlo_opt.ops.contraction.table import DotDimensions, convolution_dimensions
from hlo_opt.ops.reduction.reducers import running_type
from hlo_opt.ops.spec import Evaluator


def _wide(element_type: ElementType) -> DType:
    """The type to accumulate in."""
    if element_type.is_integer and element_type.bits < 32:
        return np.dtype(np.int64 if element_type.kind == "signed" else np.uint64)
    return running_type(element_type).dtype


_EXACT = 1 << 53
"""f64 has every integer up to here."""


def _product(lhs: Array, rhs: Array, operands: list[ElementType], result: ElementType) -> Array:
    """[batch, m, k] x [batch, k, n] in the type to accumulate in."""
    wide = _wide(result)
    if result.is_integer and all(t.is_integer for t in operands):
        made = _integer_product(lhs, rhs, wide)
        if made is not None:
            return made
    return np.matmul(lhs.astype(wide), rhs.astype(wide))


def _integer_product(lhs: Array, rhs: Array, wide: DType) -> Array | None:
    """By products of f64, for which there is a fast library: one where all sums fit, three of 16-bit halves for 32 bits; None where neither does."""
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


def matrices(found: DotDimensions, lhs: Array, rhs: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """Both sides as [batch, m, k] and [batch, k, n], and the dimensions of the result."""
    batch, contracting = (found.lhs_batch, found.rhs_batch), (found.lhs_contracting, found.rhs_contracting)
    left, right, sizes = products.matrices(lhs, rhs, batch, contracting)
    return left, right, tuple(sizes)


def dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    lhs, rhs = np.asarray(values[0]), np.asarray(values[1])
    left, right, sizes = matrices(DotDimensions.of(instruction), lhs, rhs)
    types = [o.shape.type for o in instruction.operands[:2]]
    made = _product(left, right, types, instruction.shape.type).reshape(sizes)
    dtype = instruction.shape.type.dtype
    return made if made.dtype == dtype else made.astype(dtype)


def scaled_dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """A dot of operands that are multiplied by scales, each scale for a block of elements. A scalar scale is for all."""
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
    """Rows of one side are in groups of the given sizes; each group meets its own matrix, or gives its own result.

    Source: the definition of jax.lax.ragged_dot_general, from which XLA's operation is made. Handles one ragged dimension without batch.
    """
    lhs, rhs, sizes = (np.asarray(v) for v in values)
    found = DotDimensions.of(instruction)
    ragged = instruction.ints("lhs_ragged_dims")[0]
    groups = instruction.ints("rhs_group_dims")
    if sizes.ndim != 1:
        raise ValueError("ragged-dot with one list of group sizes per batch element is not evaluated")
    ends = np.cumsum(sizes.astype(np.int64))
    wide = _wide(instruction.shape.type)
    made = np.zeros(instruction.shape.dimensions, dtype=wide)
    if ragged in found.lhs_batch:
        raise ValueError("ragged-dot over a batch dimension is not evaluated")
    for group, end in enumerate(ends):
        rows = np.s_[int(end - sizes[group]) : int(end)]
        part = np.take(lhs, range(rows.start, min(rows.stop, lhs.shape[ragged])), axis=ragged)
        if ragged in found.lhs_contracting:
            other = found.rhs_contracting[found.lhs_contracting.index(ragged)]
            matching = np.take(rhs, range(rows.start, min(rows.stop, rhs.shape[other])), axis=other)
            left, right, shape = matrices(found, part, matching)
            made[group] = np.matmul(left.astype(wide), right.astype(wide)).reshape(shape)
            continue
        one = np.take(rhs, group, axis=groups[0])
        shifted = DotDimensions(
            found.lhs_batch,
            tuple(d - (d > groups[0]) for d in found.rhs_batch),
            found.lhs_contracting,
            tuple(d - (d > groups[0]) for d in found.rhs_contracting),
        )
        left, right, shape = matrices(shifted, part, one)
        axis = len(found.lhs_batch) + found.free(lhs.ndim, right=False).index(ragged)
        to = (slice(None),) * axis + (slice(rows.start, rows.start + part.shape[ragged]),)
        made[to] = np.matmul(left.astype(wide), right.astype(wide)).reshape(shape)
    return made.astype(instruction.shape.type.dtype)


UNFOLDED = 1 << 26
"""Bytes of windows that are laid out for one matrix product. It should be large: in each, the threads of NumPy's library wait for each other, which takes far longer than the sums where
another process has the cores."""


def convolution(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    c = convolution_dimensions(instruction)
    element_type = instruction.shape.type
    wide = _wide(element_type)
    if element_type.is_integer or element_type.kind == "pred":
        types = [o.shape.type for o in instruction.operands[:2]]
        is_small = all(t.is_integer and t.bits <= 8 for t in types)  # sums of products are exact in f64
        wide = np.dtype(np.float64 if is_small else np.int64)
    lhs, rhs = (np.asarray(value) for value in values[:2])
    made = products.convolution(np, lhs, rhs, instruction.shape.dimensions, *c.described, wide.name, UNFOLDED)
    return made.astype(element_type.dtype)
