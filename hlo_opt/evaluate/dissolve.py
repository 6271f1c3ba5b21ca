"""A computation as it was before anything was fused, for what depends on which operations stand next to each other.

Where XLA:CPU leaves out a rounding (see `precision`) hangs on what an operation is followed by. Fusing must not change that: a module whose operations were
outlined into fusions, some of them more than once, is evaluated as the module that it came from.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.ir import Attribute, Called, Computation, Instruction, edit
from hlo_opt.ops import OpKind, find

GROWTH_LIMIT = 20_000
"""Instructions that a computation may grow by: calls nested n deep, each twice, grow as 2^n. What is beyond stays a call."""

_KEPT_APART = frozenset({OpKind.RANDOM, OpKind.COLLECTIVE, OpKind.OPAQUE, OpKind.CONTROL})
"""Operations of which two with the same operands may give two values, or do something twice."""

_SOURCE = frozenset({"metadata", "frontend_attributes", "backend_config", "origin", "statistics"})


def dissolved(computation: Computation) -> Computation:
    """A copy with fusions and calls replaced by what they hold, equal values merged, and without what the root does not need.

    It belongs to no module's list of computations; parameters keep their numbers. Called computations that stay are those of the original.
    """
    made = Computation(computation.name, offset=computation.offset)
    known: dict[tuple[object, ...], Instruction] = {}
    budget = GROWTH_LIMIT
    stack = [_Level(computation, None)]
    while True:
        level = stack[-1]
        instruction = next(level.left, None)
        if instruction is None:
            stack.pop()
            root = level.copies[level.computation.root]
            if not stack:
                break
            assert level.caller is not None
            stack[-1].copies[level.caller] = root
            continue
        operands = [level.copies[o] for o in instruction.operands]
        if instruction.parameter_number is not None and level.arguments is not None:
            level.copies[instruction] = level.arguments[instruction.parameter_number]
            continue
        body = _body(instruction)
        if body is not None and len(body.instructions) <= budget:
            budget -= len(body.instructions)
            stack.append(_Level(body, operands, instruction))
            continue
        taken = _element(instruction, operands)
        if taken is None:
            taken = known.setdefault(_key(instruction, operands), _copy(instruction, operands))
            if taken.parent is None:
                edit.append(made, taken)
        level.copies[instruction] = taken
    edit.set_root(made, root)
    _drop_dead(made)
    made.module = computation.module
    return made


class _Level:
    """A computation whose instructions are being copied; inlined at the arguments unless they are None."""

    def __init__(
        self, computation: Computation, arguments: list[Instruction] | None, caller: Instruction | None = None
    ) -> None:
        self.computation = computation
        self.arguments = arguments
        self.caller = caller
        self.left: Iterator[Instruction] = iter(computation.instructions)
        self.copies: dict[Instruction, Instruction] = {}


def _body(instruction: Instruction) -> Computation | None:
    name = {"fusion": "calls", "call": "to_apply"}.get(instruction.opcode, "")
    found = instruction.attributes.get(name)
    if not isinstance(found, Called):
        return None
    body = found.computations[0]
    return body if len(body.parameters) == len(instruction.operands) else None


def _element(instruction: Instruction, operands: list[Instruction]) -> Instruction | None:
    """What was put into a tuple at the place that is taken out of it."""
    if instruction.opcode != "get-tuple-element" or operands[0].opcode != "tuple":
        return None
    index = instruction.attribute("index", int)
    return operands[0].operands[index] if 0 <= index < len(operands[0].operands) else None


def _copy(instruction: Instruction, operands: list[Instruction]) -> Instruction:
    return Instruction(
        instruction.name,
        instruction.opcode,
        instruction.shape,
        operands,
        dict(instruction.attributes),
        literal=instruction.literal,
        parameter_number=instruction.parameter_number,
        offset=instruction.offset,
        end=instruction.end,
    )


def _key(instruction: Instruction, operands: list[Instruction]) -> tuple[object, ...]:
    """Equal for instructions that give the same value; like no other where that is not known."""
    literal, spec = instruction.literal, find(instruction.opcode)
    if literal is None:
        if instruction.parameter_number is not None or spec is None or spec.kind in _KEPT_APART:
            return (object(),)
    elif literal.is_elided or instruction.shape.element_count > 1:
        return (object(),)
    attributes = [
        (name, value.text if isinstance(value, Attribute) else value.computations)
        for name, value in sorted(instruction.attributes.items())
        if name not in _SOURCE
    ]
    value = None if literal is None else literal.key()
    return instruction.opcode, instruction.shape.without_layout(), value, *operands, *attributes


def _drop_dead(computation: Computation) -> None:
    """Take out what the root does not need: it would count as a user."""
    needed = {computation.root, *computation.parameters}
    todo = list(needed)
    while todo:
        for operand in todo.pop().operands:
            if operand not in needed:
                needed.add(operand)
                todo.append(operand)
    for instruction in reversed(list(computation.instructions)):
        if instruction not in needed:
            edit.remove(instruction)
