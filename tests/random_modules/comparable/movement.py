"""Recipes of operations that move data."""

from __future__ import annotations

import math

from hlo_opt.ir import ELEMENT_TYPES, Instruction, PaddingDimension, Shape, SliceDimension
from random_modules.comparable.known import Known, limits
from random_modules.comparable.writer import FLOATS, INTEGERS, MOVED, S32, Writer, arr, family


@family("broadcast and iota", "broadcast")
def _broadcast(w: Writer, opcode: str) -> None:
    source = w.take(w.array((*MOVED, "c64"), 0, 2))
    sizes = list(source.shape.dimensions)
    kept = list(range(source.shape.rank))
    for _ in range(w.number(0, 2)):
        at = w.number(0, len(sizes))
        size = w.size()
        sizes.insert(at, size if math.prod(sizes) * size <= 5000 else 1)
        kept = [k + (k >= at) for k in kept]
    w.moved(w.emit(opcode, arr(source.shape.type, *sizes), [source], dimensions=tuple(kept)), source)


@family("broadcast and iota", "iota")
def _iota(w: Writer, opcode: str) -> None:
    shape = w.array((*INTEGERS, *FLOATS), 1)
    along = w.number(0, shape.rank - 1)
    last = max(shape.dimensions[along] - 1, 0)
    wraps = shape.type.is_integer and last > 127
    known = Known(0, last, True) if not wraps else Known(-(1 << 63), 1 << 63, True)
    w.keep(w.emit(opcode, shape, [], iota_dimension=along), known)


@family("reshape", "reshape", "bitcast")
def _reshape(w: Writer, opcode: str) -> None:
    source = w.take(_plain(w.array(MOVED)))
    sizes = _split(w, list(source.shape.dimensions))
    w.moved(w.emit(opcode, arr(source.shape.type, *sizes), [source]), source)


def _plain(shape: Shape) -> Shape:
    return arr(shape.type, *shape.dimensions)


def _split(w: Writer, sizes: list[int]) -> list[int]:
    """Other dimensions of as many elements: two joined, one split, ones added and dropped."""
    if len(sizes) > 1 and w.flag():
        at = w.number(0, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif sizes and w.flag():
        at = w.number(0, len(sizes) - 1)
        factor = next((f for f in (2, 3, 5, 7) if sizes[at] % f == 0), 1)
        sizes[at : at + 1] = [sizes[at] // factor, factor]
    if w.flag():
        sizes.insert(w.number(0, len(sizes)), 1)
    return sizes


@family("transpose", "transpose")
def _transpose(w: Writer, opcode: str) -> None:
    source = w.take(w.array((*MOVED, "c64"), 1))
    order = w.shuffled(range(source.shape.rank))
    result = arr(source.shape.type, *(source.shape.dimensions[d] for d in order))
    w.moved(w.emit(opcode, result, [source], dimensions=order), source)


@family("transpose", "reverse")
def _reverse(w: Writer, opcode: str) -> None:
    source = w.take(w.array(MOVED, 1))
    w.moved(w.emit(opcode, source.shape, [source], dimensions=w.some(range(source.shape.rank))), source)


@family("copy", "copy", "opt-barrier")
def _copy(w: Writer, opcode: str) -> None:
    """A copy may change the layout."""
    source = w.take(w.array(MOVED))
    shape = source.shape if opcode == "opt-barrier" or w.flag() else _plain(source.shape)
    w.moved(w.emit(opcode, shape, [source]), source)


@family("slice and pad", "slice")
def _slice(w: Writer, opcode: str) -> None:
    source = w.take(w.array(MOVED, 1))
    ranges = []
    for size in source.shape.dimensions:
        start = w.number(0, size)
        ranges.append(SliceDimension(start, w.number(start, size), w.number(1, 3)))
    sizes = [-(-(r.limit - r.start) // r.stride) for r in ranges]
    w.moved(w.emit(opcode, arr(source.shape.type, *sizes), [source], slice=tuple(ranges)), source)


@family("slice and pad", "pad")
def _pad(w: Writer, opcode: str) -> None:
    source = w.take(w.array(MOVED, 1, 2))
    filler = w.take(Shape(source.shape.type))
    padding, sizes = [], []
    for size in source.shape.dimensions:
        interior = w.number(0, 2)
        full = size + max(size - 1, 0) * interior
        low = w.number(max(-2, -full), 3)
        high = w.number(max(-2, -full - low), 3)
        padding.append(PaddingDimension(low, high, interior))
        sizes.append(full + low + high)
    w.moved(w.emit(opcode, arr(source.shape.type, *sizes), [source, filler], padding=tuple(padding)), source, filler)


@family("slice and pad", "concatenate")
def _concatenate(w: Writer, opcode: str) -> None:
    shape = w.array((*MOVED, "c64"), 1, 2)
    along, sources = w.number(0, shape.rank - 1), []
    for _ in range(w.number(1, 4)):
        sizes = list(shape.dimensions)
        sizes[along] = w.size()
        sources.append(w.take(arr(shape.type, *sizes)))
    sizes = list(shape.dimensions)
    sizes[along] = sum(s.shape.dimensions[along] for s in sources)
    w.moved(w.emit(opcode, arr(shape.type, *sizes), sources, dimensions=(along,)), *sources)


@family("dynamic slices", "dynamic-slice", "dynamic-update-slice")
def _dynamic_slice(w: Writer, opcode: str) -> None:
    source = w.take(w.array(MOVED, 1))
    sizes = tuple(w.number(min(1, s), s) for s in source.shape.dimensions)
    one = w.pick(("s32", "s64", "u32", "s8"))
    starts = [w.take(arr(one), 0 if one == "u32" else -2, min(s + 2, 100)) for s in source.shape.dimensions]
    if opcode == "dynamic-slice":
        made = w.emit(opcode, arr(source.shape.type, *sizes), [source, *starts], dynamic_slice_sizes=sizes)
        w.moved(made, source)
        return
    update = w.take(arr(source.shape.type, *sizes))
    if reads(update, source):
        update = w.fresh(update.shape, *limits(update.shape.type))
    w.moved(w.emit(opcode, source.shape, [source, update, *starts]), source, update)


def reads(value: Instruction, source: Instruction) -> bool:
    """Whether a value is computed from another one, or from what that one is: XLA:CPU then may overwrite the target
    while it still reads it for the update, also behind an optimization barrier."""
    seen, todo = {value}, [value]
    while todo:
        for operand in todo.pop().operands:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return bool(seen & ({source} | set(source.operands)))


@family("dynamic sizes", "get-dimension-size", "set-dimension-size")
def _dimension_size(w: Writer, opcode: str) -> None:
    """A dynamic size, which a sum over the dimension and the size itself make static again: outputs are of static
    shapes."""
    source = w.take(arr("f32", *w.array(("f32",), 1, 2, 1).dimensions))
    shape, along = source.shape, w.number(0, source.shape.rank - 1)
    if opcode == "set-dimension-size":
        dynamic = tuple(d == along for d in range(shape.rank))
        size = w.take(S32, 0, shape.dimensions[along])
        shape = Shape(shape.element_type, shape.dimensions, shape.layout, dynamic)
        known = w.known[source]
        source = w.emit(opcode, shape, [source, size], dimensions=(along,))
        rest = arr("f32", *(s for d, s in enumerate(shape.dimensions) if d != along))
        zero = w.constant(arr("f32"), 0)
        add = w.scalar_function("add", ELEMENT_TYPES["f32"])
        total = w.emit("reduce", rest, [source, zero], dimensions=(along,), to_apply=add)
        count = shape.dimensions[along]
        w.keep(total, Known(min(known.low, 0) * count, max(known.high, 0) * count, False))
    made = w.emit("get-dimension-size", S32, [source], dimensions=(along,))
    w.keep(made, Known(0, shape.dimensions[along], True))


@family("dynamic sizes", "dynamic-reshape")
def _dynamic_reshape(w: Writer, opcode: str) -> None:
    """A dynamic number of pairs, from twice as many elements, which are then added up."""
    pairs = w.number(1, 5)
    source = w.take(arr("f32", 2 * pairs))
    count = w.take(S32, 0, pairs)
    two = w.constant(S32, 2)
    flat = Shape(source.shape.element_type, source.shape.dimensions, source.shape.layout, (True,))
    cut = w.emit("set-dimension-size", flat, [source, w.emit("multiply", S32, [count, two])], dimensions=(0,))
    whole = arr("f32", pairs, 2)
    shape = Shape(whole.element_type, whole.dimensions, whole.layout, (True, False))
    made = w.emit(opcode, shape, [cut, count, two])
    add = w.scalar_function("add", ELEMENT_TYPES["f32"])
    total = w.emit("reduce", arr("f32", 2), [made, w.constant(arr("f32"), 0)], dimensions=(0,), to_apply=add)
    known = w.known[source]
    w.keep(total, Known(min(known.low, 0) * pairs, max(known.high, 0) * pairs, False))
