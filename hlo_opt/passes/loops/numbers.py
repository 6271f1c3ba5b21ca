"""What passes over loops copy: values that are made of numbers, which each round may make for itself, and operations
that take the place of others."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.spec import OpKind, find

MOST_INSIDE = 64
"""Operations that make a value of numbers which each round makes for itself."""


def made_of_numbers(value: Instruction, most: int = MOST_INSIDE) -> list[Instruction] | None:
    """What makes a value out of constants alone, so many operations at most, operands first; None where it is made
    otherwise."""
    found: set[Instruction] = set()
    stack = [value]
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            if len(found) > most or not _is_number(i):
                return None
            stack.extend(i.operands)
    return needed_first([value], lambda i: i.operands)


def _is_number(i: Instruction) -> bool:
    """Whether it is a scalar constant, or moves and converts what it is given."""
    if i.literal is not None:
        return not i.literal.is_elided and i.shape.is_array and not i.shape.rank
    spec = find(i.opcode)
    kinds = (OpKind.MOVEMENT, OpKind.ELEMENTWISE)
    return spec is not None and spec.kind in kinds and i.shape.is_array and i.parameter_number is None


def copied_into(computation: Computation, order: Sequence[Instruction], copies: dict[Instruction, Instruction]) -> None:
    """Copy operations into a computation, operands first, but for those that have a copy there."""
    for i in order:
        if i not in copies:
            copies[i] = edit.clone_into(computation, i, [copies[o] for o in i.operands])


def renewed(computation: Computation, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
    """A copy of an operation that takes the place of the original, which is about to go: it has its name."""
    return edit.append(computation, edit.copied(i, i.name, operands))


def is_called_once(called: Computation) -> bool:
    """Whether a computation goes when who calls it goes."""
    assert called.module is not None
    return sum(c.called.count(called) for c in called.module.computations) == 1


def is_bound(loop: Instruction) -> bool:
    """Whether a loop, its start, what is taken out of it or what reads that stands at an end of a control dependency: a
    rewrite that takes the loop away would lose it."""
    taken = list(loop.users)
    about = {loop, *loop.operands, *taken, *(reader for user in taken for reader in user.users)}
    waits = (i for i in loop.computation.instructions if i.control_predecessors)
    return any(i in about or not about.isdisjoint(i.control_predecessors) for i in waits)
