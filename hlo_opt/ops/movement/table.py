"""broadcast, reshape, bitcast, transpose, slice, reverse, pad, concatenate, iota.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc and xla/service/shape_inference.cc. `reshape` keeps the row-major order of
elements, `bitcast` the bytes in memory.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, nullcontext

from hlo_opt.ir import IndexMap, Instruction, PaddingDimension, Shape, SliceDimension
from hlo_opt.ir.index_map import Condition, Expression, add, constant, dimensions, divide, modulo, multiply, regroup
from hlo_opt.ops import faces, omitted, strides
from hlo_opt.ops.code import Code, code
from hlo_opt.ops.elementwise.convert import bits_text, value_text
from hlo_opt.ops.elementwise.declare import NUMBERS, check_kind
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, compute_type, guard, never, zero
from hlo_opt.ops.movement.memory import bits_at
from hlo_opt.ops.shapes import declared, distinct, integer, need, operand, result, similar, wider
from hlo_opt.ops.spec import EVERYTHING, Arity, OpKind, ShapeError, declare


def infer_broadcast(instruction: Instruction) -> Shape:
    source, shape = operand(instruction, 0), declared(instruction)
    mapped = distinct(instruction.ints("dimensions"), shape.rank, "dimensions")
    need(len(mapped) == source.rank, f"dimensions must name one dimension for each of the operand's {source.rank}")
    for number, to in enumerate(mapped):
        need(
            source.dimensions[number] == shape.dimensions[to],
            f"operand dimension {number} has size {source.dimensions[number]}, dimension {to} of the result "
            f"{shape.dimensions[to]}",
        )
    return result(instruction, source.type, shape.dimensions)


def index_broadcast(instruction: Instruction, number: int) -> IndexMap:
    return _picked(instruction.shape.dimensions, instruction.ints("dimensions"))


@functools.lru_cache(maxsize=4096)
def _picked(sizes: tuple[int, ...], chosen: tuple[int, ...]) -> IndexMap:
    """Some dimensions of the result, in an order."""
    out = dimensions(sizes)
    return IndexMap(tuple([out[d] for d in chosen]))


def infer_reshape(instruction: Instruction) -> Shape:
    source, shape = operand(instruction, 0), declared(instruction)
    need(
        source.element_count == shape.element_count or -1 in (*source.dimensions, *shape.dimensions),
        f"{source.element_count} elements cannot become {shape.element_count}",
    )
    return result(instruction, source.type, shape.dimensions)


def index_reshape(instruction: Instruction, number: int) -> IndexMap:
    """Also for dynamic-reshape, whose further operands are sizes."""
    if number:
        return IndexMap(())
    return _regrouped(instruction.shape.dimensions, instruction.operands[0].shape.dimensions)


@functools.lru_cache(maxsize=4096)
def _regrouped(sizes: tuple[int, ...], source_sizes: tuple[int, ...]) -> IndexMap:
    return IndexMap(regroup(dimensions(sizes), sizes, source_sizes))


def infer_bitcast(instruction: Instruction) -> Shape:
    source, shape = operand(instruction, 0), declared(instruction)
    bits = source.element_count * source.type.bits
    need(bits == shape.element_count * shape.type.bits, f"{source} and {shape} have different sizes in memory")
    return result(instruction, shape.type, shape.dimensions)


def index_bitcast(instruction: Instruction, number: int) -> IndexMap | None:
    """Via memory: the result's position in memory, as a position of the operand. None when element counts differ."""
    shape, source = instruction.shape, instruction.operands[0].shape
    if not source.is_array or shape.element_count != source.element_count:
        return None
    return _through_memory(shape.dimensions, shape.minor_to_major, source.dimensions, source.minor_to_major)


@functools.lru_cache(maxsize=4096)
def _through_memory(
    sizes: tuple[int, ...],
    minor_to_major: tuple[int, ...],
    source_sizes: tuple[int, ...],
    source_minor_to_major: tuple[int, ...],
) -> IndexMap:
    """Cached: legality rules ask about the same bitcasts repeatedly."""
    out = dimensions(sizes)
    order, source_order = minor_to_major[::-1], source_minor_to_major[::-1]
    physical = regroup(
        tuple(out[d] for d in order),
        tuple(sizes[d] for d in order),
        tuple(source_sizes[d] for d in source_order),
    )
    logical: list[Expression] = [constant(0)] * len(source_sizes)
    for d, expression in zip(source_order, physical, strict=True):
        logical[d] = expression
    return IndexMap(tuple(logical))


def infer_transpose(instruction: Instruction) -> Shape:
    source = operand(instruction, 0)
    order = distinct(instruction.ints("dimensions"), source.rank, "dimensions")
    need(len(order) == source.rank, f"dimensions must be a permutation of {source.rank} dimensions")
    return result(instruction, source.type, [source.dimensions[d] for d in order])


def index_transpose(instruction: Instruction, number: int) -> IndexMap:
    return _transposed(instruction.shape.dimensions, instruction.ints("dimensions"))


@functools.lru_cache(maxsize=4096)
def _transposed(sizes: tuple[int, ...], order: tuple[int, ...]) -> IndexMap:
    out = dimensions(sizes)
    operand_index: list[Expression] = [constant(0)] * len(order)
    for to, source in enumerate(order):
        operand_index[source] = out[to]
    return IndexMap(tuple(operand_index))


def slice_dimensions(instruction: Instruction) -> tuple[SliceDimension, ...]:
    """The `slice` attribute. Raises ShapeError when it is malformed."""
    value = instruction.value("slice", ())
    if not isinstance(value, tuple):
        raise ShapeError("slice is malformed")
    parts = tuple(v for v in value if isinstance(v, SliceDimension))
    need(len(parts) == len(value), "slice is malformed")
    return parts


def infer_slice(instruction: Instruction) -> Shape:
    source, parts = operand(instruction, 0), slice_dimensions(instruction)
    need(len(parts) == source.rank, f"slice has {len(parts)} dimensions, the operand {source.rank}")
    sizes = []
    for size, part in zip(source.dimensions, parts, strict=True):
        need(
            part.stride >= 1 and 0 <= part.start <= part.limit and (part.limit <= size or size < 0),
            f"{part} is out of bounds in a dimension of size {size}",
        )
        sizes.append(-(-(part.limit - part.start) // part.stride))
    return result(instruction, source.type, sizes)


def index_slice(instruction: Instruction, number: int) -> IndexMap:
    out = dimensions(instruction.shape.dimensions)
    parts = slice_dimensions(instruction)
    return IndexMap(tuple(add(multiply(d, p.stride), constant(p.start)) for d, p in zip(out, parts, strict=True)))


def infer_reverse(instruction: Instruction) -> Shape:
    source = operand(instruction, 0)
    distinct(instruction.ints("dimensions"), source.rank, "dimensions")
    return result(instruction, source.type, source.dimensions)


def index_reverse(instruction: Instruction, number: int) -> IndexMap:
    sizes, reversed_ = instruction.shape.dimensions, instruction.ints("dimensions")
    return IndexMap(
        tuple(
            add(constant(sizes[k] - 1), multiply(d, -1)) if k in reversed_ and sizes[k] > 0 else d
            for k, d in enumerate(dimensions(sizes))
        )
    )


def padding_dimensions(instruction: Instruction) -> tuple[PaddingDimension, ...]:
    """The `padding` attribute. Raises ShapeError when it is malformed."""
    value = instruction.value("padding", ())
    if not isinstance(value, tuple):
        raise ShapeError("padding is malformed")
    parts = tuple(v for v in value if isinstance(v, PaddingDimension))
    need(len(parts) == len(value), "padding is malformed")
    return parts


def infer_pad(instruction: Instruction) -> Shape:
    source, value, parts = operand(instruction, 0), operand(instruction, 1), padding_dimensions(instruction)
    need(value.rank == 0, f"the padding value is not a scalar but {value}")
    need(similar(value.type, source.type), f"the padding value is {value.type}, the operand {source.type}")
    need(len(parts) == source.rank, f"padding has {len(parts)} dimensions, the operand {source.rank}")
    sizes = []
    for size, part in zip(source.dimensions, parts, strict=True):
        need(part.interior >= 0, "interior padding is not negative")
        padded = size + part.low + part.high + max(size - 1, 0) * part.interior
        need(padded >= 0, f"padding {part} removes more than a dimension of size {size} has")
        sizes.append(padded)
    return result(instruction, wider(source.type, value.type), sizes)


def index_pad(instruction: Instruction, number: int) -> IndexMap:
    if number == 1:
        return IndexMap(())
    source = instruction.operands[0].shape
    results, conditions = [], []
    out = dimensions(instruction.shape.dimensions)
    for d, size, part in zip(out, source.dimensions, padding_dimensions(instruction), strict=True):
        step = part.interior + 1
        inner = add(d, constant(-part.low))
        conditions.append(Condition(inner, 0, max((size - 1) * step, 0) if size else -1))
        if step > 1:
            conditions.append(Condition(modulo(inner, step), 0, 0))
        results.append(divide(inner, step))
    return IndexMap(tuple(results), conditions=tuple(c for c in conditions if not c.always))


def infer_concatenate(instruction: Instruction) -> Shape:
    first = operand(instruction, 0)
    (along,) = concatenated(instruction, first.rank)
    size, element_type = 0, first.type
    for number in range(len(instruction.operands)):
        shape = operand(instruction, number)
        need(similar(shape.type, first.type), f"operand {number} is {shape.type}, operand 0 {first.type}")
        need(
            shape.rank == first.rank
            and all(
                a == b for k, (a, b) in enumerate(zip(shape.dimensions, first.dimensions, strict=True)) if k != along
            ),
            f"operand {number} is {shape}, operand 0 {first}: only dimension {along} may differ",
        )
        size, element_type = size + shape.dimensions[along], wider(element_type, shape.type)
    return result(instruction, element_type, [*first.dimensions[:along], size, *first.dimensions[along + 1 :]])


def concatenated(instruction: Instruction, rank: int) -> tuple[int, ...]:
    """The dimension of a concatenate, in a tuple. Raises ShapeError unless there is exactly one."""
    along = distinct(instruction.ints("dimensions"), rank, "dimensions")
    need(len(along) == 1, "concatenate names one dimension")
    return along


def index_concatenate(instruction: Instruction, number: int) -> IndexMap:
    (along,) = instruction.ints("dimensions")
    start = sum(o.shape.dimensions[along] for o in instruction.operands[:number])
    size = instruction.operands[number].shape.dimensions[along]
    out = list(dimensions(instruction.shape.dimensions))
    condition = Condition(out[along], start, start + size - 1)
    out[along] = add(out[along], constant(-start))
    return IndexMap(tuple(out), conditions=() if condition.always else (condition,))


def infer_iota(instruction: Instruction) -> Shape:
    shape = declared(instruction)
    along = integer(instruction, "iota_dimension", 0 if shape.rank == 1 else None)
    need(0 <= along < shape.rank, f"iota_dimension={along} is not a dimension of {shape}")
    check_kind("iota", shape.type, NUMBERS)
    return result(instruction, shape.type, shape.dimensions)


def lower_moved(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The operand's element that the index map names."""
    from hlo_opt.ops.spec import spec_of

    face = spec_of(instruction).index
    index_map = None if face is None else face(instruction, 0)
    assert index_map is not None
    return builder.value(instruction.operands[0], index_map.apply(index))


def lower_bitcast(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """What lies at the same place in memory, its bits reinterpreted."""
    index_map = index_bitcast(instruction, 0)
    source, target = instruction.operands[0].shape.type, instruction.shape.type
    if index_map is None or source.bits != target.bits or source.is_complex != target.is_complex:
        return bits_at(builder, instruction, index)
    value = builder.value(instruction.operands[0], index_map.apply(index))
    return value if source == target else code(value_text(target, bits_text(source)), value)


def lower_pad(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    index_map = index_pad(instruction, 0)
    conditions = index_map.conditions_at(index)
    if never(conditions):
        return builder.value(instruction.operands[1], ())
    inside = guard(builder, conditions)
    if not inside:
        return builder.value(instruction.operands[0], index_map.apply(index))
    source = instruction.operands[0]
    element = builder.variable(instruction.shape.type, builder.value(instruction.operands[1], ()))
    is_most = 2 * source.shape.element_count >= instruction.shape.element_count
    with builder.likely(inside) if is_most else builder.branch(inside) as still:
        value = builder.value(source, index_map.apply(index))
        builder.assign(element, code("{} ? {} : {}", still, value, element) if still else value)
    return element


_MOST_NESTED = 4
"""The most operands of a concatenate whose branches are nested."""


def lower_concatenate(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    candidates = []
    for number, source in enumerate(instruction.operands):
        index_map = index_concatenate(instruction, number)
        conditions = index_map.conditions_at(index)
        if never(conditions) or not source.shape.element_count:
            continue
        inside = guard(builder, conditions)
        if not inside:
            return builder.value(source, index_map.apply(index))
        candidates.append((source, index_map, inside))
    element = builder.variable(instruction.shape.type, zero(instruction.shape.type))
    with ExitStack() as stack:  # nested, so that a compiler makes one load of the loads of all branches
        for number, (source, index_map, inside) in enumerate(candidates):
            is_last = number == len(candidates) - 1 and len(candidates) <= _MOST_NESTED
            with nullcontext() if is_last else builder.branch(inside):
                builder.assign(element, builder.value(source, index_map.apply(index)))
            if not is_last and len(candidates) <= _MOST_NESTED:
                stack.enter_context(builder.otherwise())
    return element


def lower_iota(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    along = integer(instruction, "iota_dimension", 0)
    element_type = instruction.shape.type
    return builder.bind(element_type, code(f"({compute_type(element_type)})({{}})", builder.text(index[along])))


_ROWS = {
    "broadcast": (infer_broadcast, index_broadcast, lower_moved, {"dimensions": False}),
    "reshape": (infer_reshape, index_reshape, lower_moved, {"inferred_dimension": False}),
    "bitcast": (infer_bitcast, index_bitcast, lower_bitcast, {}),
    "transpose": (infer_transpose, index_transpose, lower_moved, {"dimensions": True}),
    "slice": (infer_slice, index_slice, lower_moved, {"slice": True}),
    "reverse": (infer_reverse, index_reverse, lower_moved, {"dimensions": True}),
    "pad": (infer_pad, index_pad, lower_pad, {"padding": True}),
    "concatenate": (infer_concatenate, index_concatenate, lower_concatenate, {"dimensions": True}),
    "iota": (infer_iota, None, lower_iota, {"iota_dimension": True}),
}
_ARITY = {"pad": Arity(2, 2), "concatenate": Arity(1, None), "iota": Arity(0, 0)}
_LYING: dict[str, omitted.Omitted | None] = {
    **dict.fromkeys(("broadcast", "reshape", "bitcast", "iota")),
    "transpose": omitted.transpose,
    "reverse": omitted.as_operand(),
}
_VIEWS = {
    "broadcast": strides.broadcast,
    "reshape": strides.reshape,
    "bitcast": strides.bitcast,
    "transpose": strides.transpose,
    "slice": strides.slice_,
    "reverse": strides.reverse,
}
_AT_ONCE = {"broadcast", "concatenate", "reshape", "reverse", "slice", "transpose"}
_REUSES = {"broadcast": None, "iota": None, "pad": faces.behind_first}
for _opcode, (_infer, _index, _cuda, _attributes) in _ROWS.items():
    declare(
        _opcode,
        OpKind.MOVEMENT,
        _ARITY.get(_opcode, Arity(1, 1)),
        _attributes,
        NUMBERS if _opcode == "iota" else EVERYTHING,
        infer=_infer,
        evaluate=lazy("movement.meaning", "moved" if _opcode in _AT_ONCE else _opcode),
        index=_index,
        cuda=_cuda,
        tolerance=faces.bit_exact,
        expensive=faces.never,
        is_free=_opcode == "bitcast",
        hands_on=_opcode == "iota",
        moves_data=_opcode != "iota",
        rows=lazy("movement.meaning", "moved_rows") if _opcode in _AT_ONCE else None,
        reads_part=_opcode == "slice",
        reuses=_REUSES.get(_opcode, faces.never),
        view=_VIEWS.get(_opcode),
        omitted=_LYING.get(_opcode, omitted.anew),
    )
