"""Passes that write operations which no kernel computes as operations that kernels compute, and the writer of plain operations that they are made with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hlo_opt.ir import Attribute, Computation, ElementType, Instruction, Literal, Module, Shape, edit
from hlo_opt.ir.attribute import Value
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.passes.base import RewritingPass


class Writer:
    """Scalars among the operands of an operation are spread to the dimensions of the others."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._scalars: dict[tuple[ElementType, float], Instruction] = {}

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attributes: Value) -> Instruction:
        """Append an operation."""
        made = {name: Attribute.of(value) for name, value in attributes.items()}
        return edit.create(self.computation, opcode, opcode, shape, operands, made)

    def scalar(self, element_type: ElementType, value: float) -> Instruction:
        """A constant; each value once."""
        found = self._scalars.get((element_type, value))
        if found is None:
            shape = Shape(element_type, ())
            literal = Literal(shape, value=np.asarray(value).astype(element_type.dtype))
            found = edit.create(self.computation, "constant", "constant", shape, literal=literal)
            self._scalars[element_type, value] = found
        return found

    def number(self, value: int) -> Instruction:
        return self.scalar(S32, value)

    def predicate(self, value: bool) -> Instruction:
        return self.scalar(PRED, value)

    def outside(self, element_type: ElementType) -> Instruction:
        """An index that lies in no array."""
        return self.scalar(element_type, -1 if element_type.kind == "signed" else (1 << element_type.bits) - 1)

    def spread(self, value: Instruction, dimensions: tuple[int, ...]) -> Instruction:
        """A scalar broadcast to the dimensions; an array as it is."""
        if value.shape.dimensions == dimensions:
            return value
        return self.emit("broadcast", Shape(value.shape.element_type, dimensions), value, dimensions=())

    def zeros(self, shape: Shape) -> Instruction:
        return self.spread(self.scalar(shape.type, 0), shape.dimensions)

    def binary(self, opcode: str, left: Instruction, right: Instruction) -> Instruction:
        dimensions = left.shape.dimensions or right.shape.dimensions
        operands = (self.spread(left, dimensions), self.spread(right, dimensions))
        return self.emit(opcode, Shape(left.shape.element_type, dimensions), *operands)

    def compare(self, direction: str, left: Instruction, right: Instruction) -> Instruction:
        dimensions = left.shape.dimensions or right.shape.dimensions
        operands = (self.spread(left, dimensions), self.spread(right, dimensions))
        return self.emit("compare", Shape(PRED, dimensions), *operands, direction=direction)

    def select(self, where: Instruction, value: Instruction, instead: Instruction) -> Instruction:
        dimensions = where.shape.dimensions
        shape = (
            replace(value.shape, dimensions=dimensions)
            if value.shape.dimensions
            else Shape(value.shape.element_type, dimensions)
        )
        return self.emit("select", shape, where, self.spread(value, dimensions), self.spread(instead, dimensions))

    def iota(self, dimensions: tuple[int, ...], along: int) -> Instruction:
        return self.emit("iota", Shape(S32, dimensions), iota_dimension=along)

    def convert(self, value: Instruction, element_type: ElementType) -> Instruction:
        if value.shape.type == element_type:
            return value
        return self.emit("convert", Shape(element_type, value.shape.dimensions), value)

    def reshape(self, value: Instruction, shape: Shape) -> Instruction:
        return value if value.shape == shape else self.emit("reshape", shape, value)

    def element(self, value: Instruction, number: int) -> Instruction:
        assert value.shape.elements is not None
        return self.emit("get-tuple-element", value.shape.elements[number], value, index=number)

    def picked(self, vector: Instruction, positions: Instruction) -> Instruction:
        """The elements of a vector at positions, which lie inside."""
        dimensions = positions.shape.dimensions
        rows = self.emit("reshape", Shape(S32, (*dimensions, 1)), positions)
        attributes: dict[str, Value] = {
            "offset_dims": (),
            "collapsed_slice_dims": (0,),
            "start_index_map": (0,),
            "index_vector_dim": len(dimensions),
            "slice_sizes": (1,),
        }
        return self.emit("gather", Shape(vector.shape.element_type, dimensions), vector, rows, **attributes)


def scalar_reducer(beside: Computation, opcode: str, scalar: Shape) -> Computation:
    """A new computation in the same module that puts two scalars together by one operation."""
    module = beside.module
    assert module is not None
    made = edit.new_computation(module, opcode)
    parameters = [edit.create(made, f"p{k}", "parameter", scalar, parameter_number=k) for k in range(2)]
    edit.create(made, opcode, opcode, scalar, parameters, root=True)
    return made


@dataclass(frozen=True)
class Expansion(RewritingPass):
    """A pass that tells whether it has anything to look at: whoever must keep the module as it is copies it only then."""

    def concerns(self, module: Module) -> bool:
        """Whether the module has operations of the kind. The pass may still leave them as they are."""
        raise AssertionError(f"{type(self).__name__} does not define concerns")
