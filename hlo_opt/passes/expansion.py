"""Passes that replace operations without a kernel by operations that kernels compute; and writers of plain operations
and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo_opt.ir import (
    Attribute,
    Called,
    Computation,
    ElementType,
    Instruction,
    Literal,
    Module,
    Shape,
    SliceDimension,
    edit,
)
from hlo_opt.ir.attribute import AttributeValue
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.passes.base import RewritingPass


class BroadcastingWriter:
    """Appends operations. Scalars among the operands are broadcast to the dimensions of the others."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._scalars: dict[tuple[ElementType, complex], Instruction] = {}

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attributes: AttributeValue) -> Instruction:
        """Append an operation."""
        typed = {name: Attribute.of(value) for name, value in attributes.items()}
        return edit.create(self.computation, opcode, opcode, shape, operands, typed)

    def scalar(self, element_type: ElementType, value: complex) -> Instruction:
        """A constant; equal ones are shared."""
        constant = self._scalars.get((element_type, value))
        if constant is None:
            shape = Shape(element_type, ())
            literal = Literal(shape, value=np.asarray(value).astype(element_type.dtype))
            constant = edit.create(self.computation, "constant", "constant", shape, literal=literal)
            self._scalars[element_type, value] = constant
        return constant

    def number(self, value: int) -> Instruction:
        return self.scalar(S32, value)

    def predicate(self, value: bool) -> Instruction:
        return self.scalar(PRED, value)

    def outside(self, element_type: ElementType) -> Instruction:
        """An index outside of every array."""
        return self.scalar(element_type, -1 if element_type.kind == "signed" else (1 << element_type.bits) - 1)

    def spread(self, value: Instruction, dimensions: tuple[int, ...]) -> Instruction:
        """A scalar broadcast to the dimensions; an array unchanged."""
        if value.shape.dimensions == dimensions:
            return value
        return self.emit("broadcast", Shape(value.shape.element_type, dimensions), value, dimensions=())

    def slice(self, shape: Shape, value: Instruction, limits: Sequence[SliceDimension]) -> Instruction:
        """The part of an array between limits, one for each dimension."""
        return self.emit("slice", shape, value, slice=tuple(limits))

    def concatenate(self, shape: Shape, parts: Sequence[Instruction], along: int) -> Instruction:
        """Arrays one after another along a dimension."""
        return self.emit("concatenate", shape, *parts, dimensions=(along,))

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

    def applied(self, function: Computation, *arrays: Instruction) -> Instruction:
        """An elementwise function of scalars, of the elements of arrays of one size."""
        dimensions = arrays[0].shape.dimensions
        values: dict[Instruction, Instruction] = {}
        for member in function.instructions:
            if member.parameter_number is not None:
                values[member] = arrays[member.parameter_number]
                continue
            copy = edit.clone_into(self.computation, member, [values[o] for o in member.operands])
            if member.literal is None:
                edit.set_shape(copy, replace(arrays[0].shape, element_type=member.shape.type))
            values[member] = self.spread(copy, dimensions)
        return values[function.root]

    def picked(self, vector: Instruction, positions: Instruction) -> Instruction:
        """The elements of a vector at positions, which must be inside."""
        dimensions = positions.shape.dimensions
        rows = self.emit("reshape", Shape(S32, (*dimensions, 1)), positions)
        attributes: dict[str, AttributeValue] = {
            "offset_dims": (),
            "collapsed_slice_dims": (0,),
            "start_index_map": (0,),
            "index_vector_dim": len(dimensions),
            "slice_sizes": (1,),
        }
        return self.emit("gather", Shape(vector.shape.element_type, dimensions), vector, rows, **attributes)


class CountedLoop:
    """A loop under construction that counts its rounds from 0. `counter` is the number of the round, `values` are the
    loop's values at the start of a round, `inside` writes the round."""

    def __init__(self, beside: Computation, rounds: int, values: Sequence[Instruction]) -> None:
        assert beside.module is not None
        self.beside, self.rounds = beside, rounds
        self._outside = BroadcastingWriter(beside)
        self._given = [self._outside.number(0), *values]
        self.shape = Shape.tuple_of(*(g.shape for g in self._given))
        self.body = edit.new_computation(beside.module, "body")
        self.inside = BroadcastingWriter(self.body)
        self._condition = edit.new_computation(beside.module, "condition")
        state = edit.create_parameter(self.body, "state", self.shape, 0)
        self.counter, *self.values = [edit.create_element(state, n) for n in range(len(self._given))]

    def run(self, results: Sequence[Instruction]) -> list[Instruction]:
        """Finish the loop. `results` are the first values after a round; the other values stay. Returns the former
        after all rounds."""
        following = self.inside.binary("add", self.counter, self.inside.number(1))
        edit.create_tuple(self.body, [following, *results, *self.values[len(results) :]], root=True)
        edit.sort(self.body)
        writer = BroadcastingWriter(self._condition)
        count = edit.create_element(edit.create_parameter(self._condition, "state", self.shape, 0), 0)
        edit.set_root(self._condition, writer.compare("LT", count, writer.number(self.rounds)))
        start = edit.create_tuple(self.beside, self._given)
        called = {"condition": Called(self._condition), "body": Called(self.body)}
        loop = edit.create(self.beside, "while", "while", self.shape, [start], called)
        return [edit.create_element(loop, n + 1) for n in range(len(results))]


def scalar_reducer(beside: Computation, opcode: str, scalar: Shape) -> Computation:
    """A new computation in the same module that combines two scalars by one operation."""
    module = beside.module
    assert module is not None
    reducer = edit.new_computation(module, opcode)
    parameters = [edit.create(reducer, f"p{k}", "parameter", scalar, parameter_number=k) for k in range(2)]
    edit.create(reducer, opcode, opcode, scalar, parameters, root=True)
    return reducer


@dataclass(frozen=True)
class Expansion(RewritingPass):
    """A pass that tells whether a module has anything for it: a caller that must keep the module copies it only
    then."""

    def concerns(self, module: Module) -> bool:
        """Whether the module has operations of the kind. The pass may still leave them as they are."""
        raise AssertionError(f"{type(self).__name__} does not define concerns")
