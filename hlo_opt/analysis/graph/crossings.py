"""Crossings: kernels whose results enter or leave a loop, branch or call through a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ir.walk import CONTROL_FLOW, executed_computations
from hlo_opt.ops.sets import body_of, keeps_bytes, launches, looped, tuple_elements, tuple_index

INTO, BETWEEN, OUT = "into the first iteration", "from one iteration to the next", "out of the last iteration"


@dataclass(frozen=True, slots=True)
class Crossing:
    """A kernel whose result reaches a reader through a while, a conditional or a call.

    path   the tuple indices into the kernel's result, outermost first; () for all of it
    way    for a while: one of these texts; "" for others
    """

    producer: Instruction
    path: tuple[int, ...]
    control: Instruction
    way: str = ""

    @property
    def shape(self) -> Shape:
        """The shape of the value that crosses."""
        shape = self.producer.shape
        for index in self.path:
            assert shape.elements is not None
            shape = shape.elements[index]
        return shape


_Place = tuple[Instruction, tuple[int, ...], Instruction | None, str]
"""A value, the tuple indices that are followed, and the first crossing on the way."""


class Crossings:
    """The crossings of one module, which must not change meanwhile."""

    def __init__(self, module: Module) -> None:
        self._callers: dict[Computation, list[Instruction]] = {}
        for computation in executed_computations(module):
            for instruction in computation.instructions:
                if instruction.opcode in CONTROL_FLOW:
                    for called in dict.fromkeys(instruction.called()):
                        self._callers.setdefault(called, []).append(instruction)

    def of(self, value: Instruction) -> list[Crossing]:
        """The kernels across control flow whose results the value is or contains; none for a value made on this
        side."""
        crossings: dict[tuple[Instruction, Instruction, str], Crossing] = {}
        todo: list[_Place] = [(value, (), None, "")]
        seen = {todo[0][:2]}
        while todo:
            place, path, control, way = todo.pop()
            if launches(place):
                if control is not None:
                    crossings.setdefault((place, control, way), Crossing(place, path, control, way))
                continue
            for operand, element, crossed, how in self._before(place, path):
                if (operand, element) not in seen:
                    seen.add((operand, element))
                    todo.append((operand, element, control or crossed, way if control is not None else how))
        return list(crossings.values())

    def _before(self, value: Instruction, path: tuple[int, ...]) -> Iterator[_Place]:
        """The origins of an element of a value."""
        number, parts = tuple_index(value), tuple_elements(value)
        if number is not None:
            yield value.operands[0], (number, *path), None, ""
        elif parts is not None:
            for operand in [parts[path[0]]] if path else parts:
                yield operand, path[1:], None, ""
        elif keeps_bytes(value.opcode):
            yield value.operands[0], path, None, ""
        elif (body := looped(value)) is not None:
            yield body.root, path, value, OUT
        elif value.opcode in CONTROL_FLOW:
            for called in value.called():
                yield called.root, path, value, ""
        elif value.parameter_number is not None:
            for caller in self._callers.get(value.computation, ()):
                if (body := looped(caller)) is not None:
                    yield caller.operands[0], path, caller, INTO
                    yield body.root, path, caller, BETWEEN
                elif body_of(caller) is not None:
                    yield caller.operands[value.parameter_number], path, caller, ""
                else:
                    for number, called in enumerate(caller.called()):
                        if called is value.computation:
                            yield caller.operands[number + 1], path, caller, ""
