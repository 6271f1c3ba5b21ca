"""The NumPy evaluators of movement operations, for values and for spreads (several rows at once)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import packed, unpacked
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.shapes import integer
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.spread import full


def moved(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """The `evaluate` face of the operations in `_MOVES`."""
    return _MOVES[instruction.opcode](instruction, [np.asarray(v) for v in values], 0)


def moved_rows(instruction: Instruction, rows: list[Array]) -> Array:
    """The `rows` face: all rows of a spread at once, as a view where NumPy allows it."""
    return _MOVES[instruction.opcode](instruction, rows, 1)


# ---- `ahead` is the number of leading dimensions that the operation does not see


def _broadcast(instruction: Instruction, values: list[Array], ahead: int) -> Array:
    (value,), sizes, mapped = values, instruction.shape.dimensions, instruction.ints("dimensions")
    order = sorted(range(len(mapped)), key=lambda k: mapped[k])  # the mapping need not be increasing
    spread = [1] * len(sizes)
    for k in order:
        spread[mapped[k]] = value.shape[ahead + k]
    value = _ordered(value, order, ahead)
    return np.broadcast_to(value.reshape((*value.shape[:ahead], *spread)), (*value.shape[:ahead], *sizes))


def _ordered(value: Array, order: Sequence[int], ahead: int) -> Array:
    return value.transpose(*range(ahead), *(ahead + k for k in order))


def _sliced(instruction: Instruction, values: list[Array], ahead: int) -> Array:
    parts = (slice(p.start, p.limit, p.stride) for p in slice_dimensions(instruction))
    return values[0][(*(slice(None),) * ahead, *parts)]


def _concatenated(instruction: Instruction, values: list[Array], ahead: int) -> Array:
    return np.concatenate(
        [full(v) for v in values] if ahead else values, axis=ahead + instruction.ints("dimensions")[0]
    )


_MOVES: dict[str, Callable[[Instruction, list[Array], int], Array]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenated,
    "reshape": lambda i, values, ahead: values[0].reshape((*values[0].shape[:ahead], *i.shape.dimensions)),
    "reverse": lambda i, values, ahead: np.flip(values[0], tuple(ahead + d for d in i.ints("dimensions"))),
    "slice": _sliced,
    "transpose": lambda i, values, ahead: _ordered(values[0], i.ints("dimensions"), ahead),
}


def bitcast(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """The bytes in device memory, reinterpreted as another shape."""
    source, shape = instruction.operands[0].shape, instruction.shape
    value = np.asarray(values[0]).transpose(source.minor_to_major[::-1]).reshape(-1)
    dtype = shape.type.dtype
    if source.type.bits != shape.type.bits and max(source.type.per_byte, shape.type.per_byte) > 1:
        memory = np.ascontiguousarray(value).view(np.uint8)
        if source.type.per_byte > 1:
            memory = packed(np, memory, source.type.bits)
        if shape.type.per_byte > 1:
            memory = unpacked(np, memory, shape.type.bits, shape.element_count)
        value = memory.view(dtype)
    elif value.dtype != dtype:
        value = np.ascontiguousarray(value).view(dtype)
    order = shape.minor_to_major[::-1]
    physical = value.reshape([shape.dimensions[d] for d in order])
    return physical.transpose(np.argsort(order)) if order else physical.reshape(())


def pad(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Interior padding is applied first; negative low or high padding crops."""
    value, filler = np.asarray(values[0]), values[1]
    padded = np.full(instruction.shape.dimensions, filler, dtype=instruction.shape.type.dtype)
    to, source = [], []
    for size, out, part in zip(value.shape, padded.shape, padding_dimensions(instruction), strict=True):
        step = part.interior + 1
        first = 0 if part.low >= 0 else -(part.low // step)
        start = part.low + first * step
        count = 0 if start >= out else min(size - first, -(-(out - start) // step))
        source.append(np.s_[first : first + max(count, 0)])
        to.append(np.s_[start : start + max(count, 0) * step : step])
    padded[tuple(to)] = value[tuple(source)]
    return padded


def iota(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    shape = instruction.shape
    if not shape.element_count:
        return np.empty(shape.dimensions, shape.type.dtype)
    along = integer(instruction, "iota_dimension", 0)
    counted = np.arange(shape.dimensions[along]).astype(shape.type.dtype)
    spread = [1] * shape.rank
    spread[along] = -1
    return np.broadcast_to(counted.reshape(spread), shape.dimensions)
