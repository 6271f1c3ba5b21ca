"""The NumPy meaning of the movement operations. Every function takes (evaluator, instruction, operand values)."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.library.packing import packed, unpacked
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.shapes import integer
from hlo_opt.ops.spec import Evaluator


def broadcast(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    value, sizes = np.asarray(values[0]), instruction.shape.dimensions
    mapped = instruction.ints("dimensions")
    if list(mapped) != sorted(mapped):  # the result's dimensions may come in another order
        order = np.argsort(mapped)
        value = value.transpose(order)
        mapped = tuple(mapped[k] for k in order)
    spread = [1] * len(sizes)
    for to, size in zip(mapped, value.shape, strict=True):
        spread[to] = size
    return np.broadcast_to(value.reshape(spread), sizes)


def reshape(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    return np.asarray(values[0]).reshape(instruction.shape.dimensions)


def bitcast(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """The bytes as they lie in a device's memory, read as another shape."""
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


def transpose(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    return np.asarray(values[0]).transpose(instruction.ints("dimensions"))


def slice_(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    parts = tuple(slice(p.start, p.limit, p.stride) for p in slice_dimensions(instruction))
    return np.asarray(values[0])[parts]


def reverse(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    return np.flip(values[0], instruction.ints("dimensions"))


def pad(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Interior padding first; negative low or high crops the result of it."""
    value, filler = np.asarray(values[0]), values[1]
    made = np.full(instruction.shape.dimensions, filler, dtype=instruction.shape.type.dtype)
    to, source = [], []
    for size, out, part in zip(value.shape, made.shape, padding_dimensions(instruction), strict=True):
        step = part.interior + 1
        first = 0 if part.low >= 0 else -(part.low // step)
        start = part.low + first * step
        count = 0 if start >= out else min(size - first, -(-(out - start) // step))
        source.append(np.s_[first : first + max(count, 0)])
        to.append(np.s_[start : start + max(count, 0) * step : step])
    made[tuple(to)] = value[tuple(source)]
    return made


def concatenate(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    return np.concatenate(values, axis=instruction.ints("dimensions")[0])


def iota(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    shape = instruction.shape
    if not shape.element_count:
        return np.empty(shape.dimensions, shape.type.dtype)
    along = integer(instruction, "iota_dimension", 0)
    counted = np.arange(shape.dimensions[along]).astype(shape.type.dtype)
    spread = [1] * shape.rank
    spread[along] = -1
    return np.broadcast_to(counted.reshape(spread), shape.dimensions)
