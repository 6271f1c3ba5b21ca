"""What operations give to the computations that they call, and what these must give back: the `calls` faces. Source: xla/service/hlo_verifier.cc."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.ir import Called, Instruction, Shape
from hlo_opt.ops.spec import Calling, ShapeError


def whole(instruction: Instruction) -> Iterator[Calling]:
    """All operands, for the result."""
    for callee in instruction.called():
        yield callee, [o.shape for o in instruction.operands], instruction.shape


def started(instruction: Instruction) -> Iterator[Calling]:
    """All operands, for the second element of the result."""
    elements = instruction.shape.elements or ()
    for callee in instruction.called():
        yield callee, [o.shape for o in instruction.operands], elements[1] if len(elements) > 1 else None


def scalars(instruction: Instruction) -> Iterator[Calling]:
    """One element of each operand, for one of the result."""
    shape = instruction.shape
    for callee in instruction.called():
        given = [Shape(o.shape.type) if o.shape.is_array else o.shape for o in instruction.operands]
        yield callee, given, Shape(shape.type) if shape.is_array else None


def pairs(instruction: Instruction) -> Iterator[Calling]:
    """Two values at a time."""
    for callee in instruction.called():
        yield callee, (None, None), None


def loop(instruction: Instruction) -> Iterator[Calling]:
    """The state, for whether to go on and for the next state."""
    for name, result in (("condition", None), ("body", instruction.shape)):
        value = instruction.attributes.get(name)
        if isinstance(value, Called):
            yield value.computations[0], [o.shape for o in instruction.operands], result


def branches(instruction: Instruction) -> Iterator[Calling]:
    """One operand each, for the result. Raises ShapeError where there is not one operand for each branch."""
    called, given = list(instruction.called()), instruction.operands[1:]
    if len(called) != len(given):
        raise ShapeError(
            f"conditional has {len(called)} branches and {len(instruction.operands) - 1} operands for them"
        )
    for callee, operand in zip(called, given, strict=True):
        yield callee, [operand.shape], instruction.shape
