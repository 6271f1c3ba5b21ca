"""Recipes of operations that move data."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Instruction,
    PaddingDimension,
    Shape,
    SliceDimension,
)
from random_modules.builder import (
    EVERYTHING,
    FLOATS,
    INTEGERS,
    S32,
    Builder,
    arr,
    recipe,
)


@recipe("broadcast")
def _broadcast(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    kept = tuple(d for d in range(shape.rank) if b.flag())
    source = arr(shape.type, *(shape.dimensions[d] for d in kept))
    return b.emit(opcode, shape, [b.value(source)], dimensions=kept)


@recipe("reshape", "bitcast")
def _reshape(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    flat = arr(shape.type, math.prod(shape.dimensions))
    return b.emit(opcode, flat, [b.value(shape)])


@recipe("dynamic-reshape")
def _dynamic_reshape(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(FLOATS), b.number(1, 4))
    return b.emit(opcode, shape, [b.value(shape), b.value(S32)])


@recipe("transpose")
def _transpose(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    order = tuple(b.draw(st.permutations(range(shape.rank))))
    result = arr(shape.type, *(shape.dimensions[d] for d in order))
    return b.emit(opcode, result, [b.value(shape)], dimensions=order)


@recipe("reverse")
def _reverse(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    return b.emit(opcode, shape, [b.value(shape)], dimensions=tuple(d for d in range(shape.rank) if b.flag()))


@recipe("slice")
def _slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    ranges = []
    for size in shape.dimensions:
        start = b.number(0, size - 1)
        ranges.append(SliceDimension(start, b.number(start + 1, size), b.number(1, 2)))
    sizes = [-(-(r.limit - r.start) // r.stride) for r in ranges]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape)], slice=tuple(ranges))


@recipe("pad")
def _pad(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    padding = tuple(PaddingDimension(b.number(0, 2), b.number(0, 2), b.number(0, 1)) for _ in shape.dimensions)
    sizes = [s + p.low + p.high + p.interior * (s - 1) for s, p in zip(shape.dimensions, padding, strict=True)]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape), b.value(Shape(shape.type))], padding=padding)


@recipe("concatenate")
def _concatenate(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    along, count = b.number(0, shape.rank - 1), b.number(1, 3)
    sizes = list(shape.dimensions)
    sizes[along] *= count
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape) for _ in range(count)], dimensions=(along,))


@recipe("iota")
def _iota(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS), 1)
    return b.emit(opcode, shape, [], iota_dimension=b.number(0, shape.rank - 1))


@recipe("dynamic-slice")
def _dynamic_slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    sizes = tuple(b.number(1, s) for s in shape.dimensions)
    starts = [b.value(S32) for _ in sizes]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape), *starts], dynamic_slice_sizes=sizes)


@recipe("dynamic-update-slice")
def _dynamic_update_slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    update = arr(shape.type, *(b.number(1, s) for s in shape.dimensions))
    return b.emit(opcode, shape, [b.value(shape), b.value(update), *(b.value(S32) for _ in shape.dimensions)])


@recipe("get-dimension-size")
def _get_dimension_size(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING, 1)
    return b.emit(opcode, S32, [b.value(shape)], dimensions=(b.number(0, shape.rank - 1),))


@recipe("set-dimension-size")
def _set_dimension_size(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    along = b.number(0, shape.rank - 1)
    dynamic = tuple(d == along for d in range(shape.rank))
    result = Shape(shape.element_type, shape.dimensions, shape.layout, dynamic)
    return b.emit(opcode, result, [b.value(shape), b.value(S32)], dimensions=(along,))


@recipe("gather")
def _gather(b: Builder, opcode: str) -> Instruction:
    rows, columns, count = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    operand, indices = b.value(arr("f32", rows, columns)), b.value(arr("s32", count, 1))
    return b.emit(
        opcode, arr("f32", count, columns), [operand, indices],
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, columns),
        indices_are_sorted=True if b.flag() else None,
    )  # fmt: skip


@recipe("scatter")
def _scatter(b: Builder, opcode: str) -> Instruction:
    rows, columns, count = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    operands = [b.value(arr("f32", rows, columns)), b.value(arr("s32", count, 1)), b.value(arr("f32", count, columns))]
    return b.emit(
        opcode, arr("f32", rows, columns), operands,
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
        unique_indices=True if b.flag() else None, to_apply=b.reducer(ELEMENT_TYPES["f32"]),
    )  # fmt: skip
