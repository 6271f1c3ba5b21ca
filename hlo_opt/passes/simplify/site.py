"""The site of a rewrite: a rule creates operations beside the instruction that it replaces, and the site remembers
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hlo_opt.ir import (
    Attribute,
    Called,
    ElementType,
    Instruction,
    Layout,
    Literal,
    Shape,
    SliceDimension,
    array,
    edit,
)
from hlo_opt.ir.attribute import AttributeValue


def packed_tail(shape: Shape) -> str:
    """What a layout says of a packed array, such as `E(4)`; "" for a type of whole bytes, and for no array."""
    kind = shape.element_type
    is_small = kind is not None and (kind.is_integer or kind.is_float) and kind.bits < 8
    return f"E({kind.bits})" if kind is not None and is_small else ""


class Site:
    """New operations are row-major, and inherit the metadata and the framework's attributes of the instruction. They
    are packed where values beside it are, as XLA asks of operands and results of types of less than a byte.
    `created` has them, in order. `met` are collectives that the rewrite replaces: they are removed once nothing reads
    them."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.computation = instruction.computation
        self.created: list[Instruction] = []
        self.met: list[Instruction] = []

    def _add(self, instruction: Instruction) -> Instruction:
        edit.inherit(instruction, self.instruction)
        shape = instruction.shape
        if shape.is_array and packed_tail(shape) and self._is_packed():
            edit.set_shape(instruction, replace(shape, layout=Layout(shape.minor_to_major, packed_tail(shape))))
        self.created.append(instruction)
        return instruction

    def _is_packed(self) -> bool:
        """Whether the layouts of the instruction or its operands say how long an element is."""
        shapes = [leaf for i in (self.instruction, *self.instruction.operands) for leaf in i.shape.leaves()]
        return any(s.layout is not None and s.layout.tail == packed_tail(s) != "" for s in shapes)

    def undo(self) -> None:
        """Remove all that was created."""
        for instruction in reversed(self.created):
            edit.unmake(instruction)
        self.created.clear()
        self.met.clear()

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attributes: AttributeValue) -> Instruction:
        """Create an operation."""
        typed: dict[str, Attribute | Called] = {n: Attribute.of(v) for n, v in attributes.items()}
        return self._add(edit.create(self.computation, opcode, opcode, shape, operands, typed))

    def elementwise(self, opcode: str, *operands: Instruction) -> Instruction:
        """An operation on arrays of one shape, with a result of their type."""
        first = operands[0].shape
        return self.emit(opcode, array(first.type, *first.dimensions), *operands)

    def again(
        self,
        like: Instruction,
        operands: Sequence[Instruction],
        shape: Shape | None = None,
        **attributes: AttributeValue,
    ) -> Instruction:
        """The same operation on other operands, perhaps with another shape and other attributes; an empty list that was
        not there is left out."""
        changed = {n: v for n, v in attributes.items() if n in like.attributes or v != ()}
        all_attributes = {**like.attributes, **{n: Attribute.of(v) for n, v in changed.items()}}
        result = shape or like.shape
        return self._add(edit.create(self.computation, like.opcode, like.opcode, result, operands, all_attributes))

    def literal(self, shape: Shape, value: npt.NDArray[np.generic]) -> Instruction:
        """A constant."""
        constant = edit.create(self.computation, "constant", "constant", shape, literal=Literal(shape, value=value))
        return self._add(constant)

    def scalar(self, element_type: ElementType, value: npt.ArrayLike) -> Instruction:
        """A scalar constant."""
        return self.literal(array(element_type), np.asarray(value).astype(element_type.dtype).reshape(()))

    def full(self, shape: Shape, value: npt.ArrayLike) -> Instruction:
        """An array of one number."""
        return self.spread(self.scalar(shape.type, value), shape.dimensions)

    def spread(self, scalar: Instruction, dimensions: Sequence[int]) -> Instruction:
        """A scalar broadcast to dimensions."""
        return self.broadcast(scalar, dimensions, ()) if dimensions else scalar

    def broadcast(self, value: Instruction, dimensions: Sequence[int], mapped: Sequence[int]) -> Instruction:
        shape = array(value.shape.type, *dimensions)
        return self.emit("broadcast", shape, value, dimensions=tuple(mapped))

    def reshape(self, value: Instruction, dimensions: Sequence[int]) -> Instruction:
        """The value in other dimensions; the value itself if it has them."""
        if value.shape.dimensions == tuple(dimensions):
            return value
        return self.emit("reshape", array(value.shape.type, *dimensions), value)

    def view(self, value: Instruction, dimensions: Sequence[int]) -> Instruction:
        """The same bytes in other dimensions, for a row-major operand or result of a library call: no kernel takes it
        in."""
        return self.emit("bitcast", array(value.shape.type, *dimensions), value)

    def transpose(self, value: Instruction, order: Sequence[int]) -> Instruction:
        """Dimension d of the result is dimension order[d] of the value; the value itself where nothing moves."""
        if tuple(order) == tuple(range(len(order))):
            return value
        shape = array(value.shape.type, *(value.shape.dimensions[d] for d in order))
        return self.emit("transpose", shape, value, dimensions=tuple(order))

    def slice(self, value: Instruction, parts: Sequence[SliceDimension]) -> Instruction:
        sizes = [-(-(p.limit - p.start) // p.stride) for p in parts]
        return self.emit("slice", array(value.shape.type, *sizes), value, slice=tuple(parts))

    def convert(self, value: Instruction, element_type: ElementType) -> Instruction:
        """The value in another type; the value itself if it has the type."""
        if value.shape.type == element_type:
            return value
        return self.emit("convert", array(element_type, *value.shape.dimensions), value)

    def concatenate(self, values: Sequence[Instruction], along: int) -> Instruction:
        """The values joined; a single value is returned itself."""
        if len(values) == 1:
            return values[0]
        first = values[0].shape
        sizes = list(first.dimensions)
        sizes[along] = sum(v.shape.dimensions[along] for v in values)
        return self.emit("concatenate", array(first.type, *sizes), *values, dimensions=(along,))
