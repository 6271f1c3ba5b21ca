"""Helpers of passes over loops: values that each round may compute again from numbers, and copies of operations."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops.spec import OpKind, find

MOST_INSIDE = 64
"""The most operations of a value that each round computes again from numbers."""


def from_numbers(value: Instruction, most: int = MOST_INSIDE) -> list[Instruction] | None:
    """The operations, at most `most`, that compute a value from constants alone, operands first; None for any other
    value."""
    sources: set[Instruction] = set()
    stack = [value]
    while stack:
        i = stack.pop()
        if i not in sources:
            sources.add(i)
            if len(sources) > most or not _is_number(i):
                return None
            stack.extend(i.operands)
    return operands_first([value])


def _is_number(i: Instruction) -> bool:
    """Whether it is a scalar constant, or moves or converts its operand."""
    if i.literal is not None:
        return not i.literal.is_elided and i.shape.is_array and not i.shape.rank
    spec = find(i.opcode)
    kinds = (OpKind.MOVEMENT, OpKind.ELEMENTWISE)
    return spec is not None and spec.kind in kinds and i.shape.is_array and i.parameter_number is None


def copied_into(computation: Computation, order: Sequence[Instruction], copies: dict[Instruction, Instruction]) -> None:
    """Copy operations into a computation, operands first, except those that have a copy there."""
    for i in order:
        if i not in copies:
            copies[i] = edit.clone_into(computation, i, [copies[o] for o in i.operands])


def renewed(computation: Computation, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
    """A copy of an operation, with its name, for an original that will be removed."""
    return edit.append(computation, edit.copied(i, i.name, operands))


def is_called_once(called: Computation) -> bool:
    """Whether a computation has one caller only, and goes with it."""
    assert called.module is not None
    return sum(c.called.count(called) for c in called.module.computations) == 1


def is_bound(loop: Instruction) -> bool:
    """Whether a loop, its operand, its elements or their readers stand at an end of a control dependency: removing the
    loop would lose it."""
    readers = list(loop.users)
    about = {loop, *loop.operands, *readers, *(reader for user in readers for reader in user.users)}
    waits = (i for i in loop.computation.instructions if i.control_predecessors)
    return any(i in about or not about.isdisjoint(i.control_predecessors) for i in waits)
