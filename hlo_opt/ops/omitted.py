"""The `omitted` faces: the layout of a result whose text omits its shape.

The `infer` face gives the shape; the layout follows XLA's inference (xla/service/shape_inference.cc), mostly an
operand's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from hlo_opt.ir import Instruction, Layout, Shape

Omitted = Callable[[Instruction, Shape], Shape]
"""(instruction, inferred shape without layout) -> the shape."""


def anew(instruction: Instruction, shape: Shape) -> Shape:
    """The default layout."""
    return shape


def as_operand(number: int = 0, *, every: bool = False) -> Omitted:
    """The layout of an operand. In a tuple, the first array has the first operand's; with `every`, each array its
    operand's."""

    def omitted(instruction: Instruction, shape: Shape) -> Shape:
        operands = instruction.operands
        if not operands:
            return shape
        if shape.elements is None:
            return lying_as(shape, operands[number].shape)
        count = len(shape.elements) if every else 1
        kept = [lying_as(e, o.shape) for e, o in zip(shape.elements[:count], operands, strict=False)]
        return Shape.tuple_of(*kept, *shape.elements[count:])

    return omitted


def elementwise(instruction: Instruction, shape: Shape) -> Shape:
    """The first operand's layout; packed like it only for sub-byte elements, where there are two operands or another
    type."""
    if not instruction.operands:
        return shape
    first = instruction.operands[0].shape
    if first.dimensions != shape.dimensions:
        return shape
    if len(instruction.operands) == 2 or first.type != shape.type:
        return lying_as(shape, first, packed_as(first) if 1 < shape.type.bits < 8 else "")
    return lying_as(shape, first)


def select(instruction: Instruction, shape: Shape) -> Shape:
    """The predicate's layout with the values' packing; with a scalar predicate, the values' layout."""
    choice, value = (o.shape for o in instruction.operands[:2])
    return lying_as(shape, choice, packed_as(value)) if choice.rank else lying_as(shape, value)


def transpose(instruction: Instruction, shape: Shape) -> Shape:
    """The layout that makes the transpose a bitcast."""
    permutation, first = instruction.ints("dimensions"), instruction.operands[0].shape
    order = tuple(permutation.index(d) for d in first.minor_to_major)
    return replace(shape, layout=Layout(order, first.layout.tail if first.layout else "") if order else None)


def set_dimension_size(instruction: Instruction, shape: Shape) -> Shape:
    (dimension,) = instruction.ints("dimensions")
    dynamic = shape.dynamic or (False,) * shape.rank
    shape = replace(shape, dynamic=(*dynamic[:dimension], True, *dynamic[dimension + 1 :]))
    return lying_as(shape, instruction.operands[0].shape)


def of_initial_value(instruction: Instruction, shape: Shape) -> Shape:
    """The type of the single initial value, whatever the reducer computes in."""
    if shape.elements is None and len(instruction.operands) == 2:
        return shape.with_type(instruction.operands[1].shape.type)
    return shape


def of_element(instruction: Instruction, shape: Shape) -> Shape:
    """The element's layout in its tuple."""
    elements, index = instruction.operands[0].shape.elements, instruction.value("index", 0)
    return elements[index] if elements is not None and isinstance(index, int) else shape


_PACKED = re.compile(r"E\(\d+\)")
_BEHIND_PACKED = re.compile(r"D\(|S\(|SC\(|M|$")


def lying_as(shape: Shape, other: Shape, packed: str | None = None) -> Shape:
    """The shape with another one's layout; `packed` replaces its element size, such as `E(4)`."""
    if other.rank != shape.rank or not (shape.rank or other.layout):
        return shape
    layout = other.layout
    if packed is not None and (layout is not None or packed):
        tail = _PACKED.sub("", "" if layout is None else layout.tail)
        if packed:
            at = _BEHIND_PACKED.search(tail)
            assert at is not None
            tail = tail[: at.start()] + packed + tail[at.start() :]
        layout = Layout(other.minor_to_major, tail)
    return replace(shape, layout=layout)


def packed_as(shape: Shape) -> str:
    """The element size in a layout, such as `E(4)`; "" for none."""
    match = _PACKED.search(shape.layout.tail) if shape.layout is not None else None
    return "" if match is None else match[0]
