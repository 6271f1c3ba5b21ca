"""Values with dynamic dimensions, and operations on them.

An array type such as `f32[<=4,3]` bounds a size known only at run time. A `Dynamic` value holds the array at its bound
and the sizes in use. An operation on it computes what it would on arrays of exactly these sizes, as XLA's padded static
form does (xla/service/dynamic_padder.cc, xla/service/dynamic_dimension_inference.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hlo_opt.ir import Instruction, Shape, SliceDimension
from hlo_opt.ir.attribute import Attribute
from hlo_opt.ir.index_map import groups
from hlo_opt.ir.values import Array
from hlo_opt.ops.spec import Evaluator, OpKind, ShapeError, find
from hlo_opt.ops.values import Dynamic, Value, parts, whole

Evaluate = Callable[[Evaluator, Instruction, list[Value]], Value]


def is_dynamic(shape: Shape) -> bool:
    """Whether any array of a shape has a dynamic dimension."""
    return any(any(leaf.dynamic) for leaf in shape.leaves())


def takes_dynamic(instruction: Instruction) -> bool:
    """Whether any operand or result has a dynamic dimension."""
    return is_dynamic(instruction.shape) or any(is_dynamic(o.shape) for o in instruction.operands)


_SIZES = frozenset({"set-dimension-size", "get-dimension-size", "dynamic-reshape", "custom-call", "copy"})
"""Operations that read sizes themselves, or pass values on."""


def on_used_elements(evaluate: Evaluate, instruction: Instruction) -> Evaluate:
    """An evaluator for dynamic arrays: runs the operation on the elements in use, at their sizes."""
    spec = find(instruction.opcode)
    opcode = instruction.opcode
    passes = spec is None or spec.kind in (OpKind.CONTROL, OpKind.COLLECTIVE) or opcode in _SIZES
    if passes:
        return evaluate

    shapes = (instruction.shape, *(o.shape for o in instruction.operands))
    is_open = any(-1 in leaf.dimensions for shape in shapes for leaf in shape.leaves())

    def run(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
        if not any(isinstance(v, Dynamic) for v in values) and not is_open:
            return evaluate(evaluator, instruction, values)
        used = _same_sizes(instruction, [v.used if isinstance(v, Dynamic) else np.asarray(v) for v in values])
        small = resized(instruction, [u.shape for u in used])
        return _bounded(instruction.shape, evaluate(evaluator, small, [*used]), _declared_sizes(instruction, values))

    return run


def _declared_sizes(instruction: Instruction, values: Sequence[Value]) -> tuple[int, ...] | None:
    """The declared sizes in use of an elementwise operation's operands."""
    spec = find(instruction.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE:
        return None
    return next((v.sizes for v in values if isinstance(v, Dynamic) and v.padded.ndim), None)


def _same_sizes(instruction: Instruction, values: list[Array]) -> list[Array]:
    """Operands that must agree in size, cut to the smallest: a static operand may be combined with a dynamic one."""
    spec = find(instruction.opcode)
    if instruction.opcode == "concatenate":
        free = set(instruction.ints("dimensions"))
    elif (spec is not None and spec.kind is OpKind.ELEMENTWISE) or instruction.opcode in ("sort", "map"):
        free = set()
    else:
        return values
    rank = max(v.ndim for v in values)
    full = [v for v in values if v.ndim == rank]
    sizes = [min(v.shape[d] for v in full) for d in range(rank)]
    cut = tuple(slice(None) if d in free else slice(0, sizes[d]) for d in range(rank))
    return [v[cut] if v.ndim == rank else v for v in values]


def resized(instruction: Instruction, sizes: Sequence[tuple[int, ...]]) -> Instruction:
    """The same operation on static operands of these sizes. Raises ShapeError where the result's sizes do not
    follow."""
    operands = [
        Instruction(o.name, "parameter", Shape(o.shape.type, tuple(size)))
        for o, size in zip(instruction.operands, sizes, strict=True)
    ]
    attributes = dict(instruction.attributes)
    shape = _static(instruction.shape)
    small = Instruction(instruction.name, instruction.opcode, shape, operands, attributes)
    small.parent = instruction.parent
    prepare = _PREPARE.get(instruction.opcode)
    if prepare is not None:
        prepare(instruction, small)
    spec = find(instruction.opcode)
    if spec is not None and spec.infer is not None:
        small.shape = spec.infer(small)
    return small


def _static(shape: Shape) -> Shape:
    if shape.elements is not None:
        return Shape.tuple_of(*(_static(e) for e in shape.elements))
    return Shape(shape.element_type, shape.dimensions)


def _prepare_broadcast(instruction: Instruction, small: Instruction) -> None:
    sizes = list(instruction.shape.dimensions)
    for number, to in enumerate(instruction.ints("dimensions")):
        sizes[to] = small.operands[0].shape.dimensions[number]
    small.shape = Shape(instruction.shape.element_type, tuple(sizes))


def _prepare_reshape(instruction: Instruction, small: Instruction) -> None:
    """Reshape the sizes in use group by group, as at the bound. Each group may have one dynamic dimension in the
    result."""
    source, shape = instruction.operands[0].shape, instruction.shape
    used = small.operands[0].shape.dimensions
    sizes = list(shape.dimensions)
    bounded = -1 not in (*source.dimensions, *shape.dimensions) and shape.element_count > 0
    parts = groups(source.dimensions, shape.dimensions) if bounded else [(0, source.rank, 0, shape.rank)]
    for left, left_end, right, right_end in parts:
        count = math.prod(used[left:left_end])
        if count == math.prod(sizes[right:right_end]) and -1 not in sizes[right:right_end]:
            continue
        open_ = [d for d in range(right, right_end) if shape.dynamic and shape.dynamic[d]]
        if not open_:
            open_ = [d for d in range(right, right_end) if shape.dimensions[d] != 1][:1]
        rest = math.prod(sizes[d] for d in range(right, right_end) if d not in open_[:1])
        if len(open_) != 1 or (rest and count % rest):
            raise ShapeError(f"{count} elements in use do not determine the sizes of {shape}")
        sizes[open_[0]] = count // rest if rest else 0
    small.shape = Shape(shape.element_type, tuple(sizes))


def _prepare_slice(instruction: Instruction, small: Instruction) -> None:
    ranges = instruction.value("slice", ())
    parts = ranges if isinstance(ranges, tuple) else ()
    kept = []
    for part, size in zip(parts, small.operands[0].shape.dimensions, strict=True):
        if not isinstance(part, SliceDimension):
            raise ShapeError("slice is malformed")
        limit = min(part.limit, size)
        kept.append(SliceDimension(min(part.start, limit), limit, part.stride))
    small.attributes["slice"] = Attribute.of(tuple(kept))


def _prepare_sizes(name: str) -> Callable[[Instruction, Instruction], None]:
    def prepare(instruction: Instruction, small: Instruction) -> None:
        bounds = instruction.operands[0].shape.dimensions
        kept = [
            min(size, used) if size in (bound, -1) else size
            for size, bound, used in zip(
                instruction.ints(name), bounds, small.operands[0].shape.dimensions, strict=True
            )
        ]
        small.attributes[name] = Attribute.of(tuple(kept))

    return prepare


def _prepare_fixed(instruction: Instruction, small: Instruction) -> None:
    """The declared result, with the first operand's sizes in use."""
    sizes = instruction.shape.dimensions
    if instruction.shape.is_array and small.operands and len(sizes) == small.operands[0].shape.rank:
        small.shape = Shape(instruction.shape.element_type, small.operands[0].shape.dimensions)


_PREPARE: dict[str, Callable[[Instruction, Instruction], None]] = {
    "broadcast": _prepare_broadcast,
    "convert": _prepare_fixed,
    "bitcast": _prepare_reshape,
    "reshape": _prepare_reshape,
    "slice": _prepare_slice,
    "gather": _prepare_sizes("slice_sizes"),
    "dynamic-slice": _prepare_sizes("dynamic_slice_sizes"),
}


def _bounded(shape: Shape, value: Value, sizes: tuple[int, ...] | None) -> Value:
    """The value padded to its declared bounds."""
    if shape.elements is not None:
        return tuple(_bounded(e, v, sizes) for e, v in zip(shape.elements, parts(value), strict=True))
    return at_bound(shape, np.asarray(value), sizes)


def at_bound(shape: Shape, value: Array, sizes: tuple[int, ...] | None = None) -> Value:
    """An array in the sizes in use as a value of its type: zero-padded to the bound. Raises ValueError when it does not
    fit."""
    if value.ndim != shape.rank:
        raise ValueError(f"a value of {value.ndim} dimensions for {shape}")
    bound = tuple(max(b, size) if b < 0 else b for b, size in zip(shape.dimensions, value.shape, strict=True))
    if any(size > b for size, b in zip(value.shape, bound, strict=True)):
        raise ValueError(f"sizes {value.shape} do not fit into {shape}")
    if value.shape == bound and (sizes is None or sizes == bound):
        return value
    padded = value
    if value.shape != bound:
        padded = np.zeros(bound, value.dtype)
        padded[tuple(map(slice, value.shape))] = value
    return Dynamic(padded, sizes if sizes is not None and len(sizes) == value.ndim else value.shape)


def with_size(value: Value, along: int, size: int) -> Value:
    """The value with another size in one dimension. A larger size exposes what is in the padding."""
    dynamic = whole(value)
    sizes = (*dynamic.sizes[:along], size, *dynamic.sizes[along + 1 :])
    return dynamic.padded if sizes == dynamic.padded.shape else Dynamic(dynamic.padded, sizes)


def size_of(value: Value, along: int) -> int:
    """The size in use of a dimension, as it was set."""
    return int(whole(value).sizes[along])


def reshaped(value: Value, shape: Shape, sizes: Sequence[int]) -> Value:
    """The elements in use, in row-major order, reshaped. Raises ValueError where the element counts differ."""
    used = value.used if isinstance(value, Dynamic) else np.asarray(value)
    within = tuple(max(0, size) for size in sizes)
    if math.prod(within) != used.size:
        raise ValueError(f"{used.size} elements in use do not fill {'x'.join(map(str, within)) or 'a scalar'}")
    return at_bound(shape, used.reshape(within))
