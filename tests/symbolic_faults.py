"""Modules with one fault, as a rule would make them that has one: what a proof has to refute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hlo_opt.ir import Attribute, Instruction, Literal, Module, edit
from hlo_opt.ops.movement.table import slice_dimensions


def faults(module: Module) -> dict[tuple[str, int], Module]:
    """Copies of a module with one fault each: another place or number, operands that have changed places, a result that
    is turned round or not what it was. They are named by what it is, and the instruction's number."""
    found = {}
    for change in (_another_place, _another_number, _turned_round, _opposite, _changed_places):
        for number in range(len(module.entry.instructions)):
            made = edit.clone_module(module)
            if change(list(made.entry.instructions)[number]):
                edit.sort(made.entry)
                found[change.__name__, number] = made
    return found


def _another_place(i: Instruction) -> bool:
    """A slice begins one element later, or earlier."""
    if i.opcode != "slice":
        return False
    parts = list(slice_dimensions(i))
    for d, part in enumerate(parts):
        by = 1 if part.limit < i.operands[0].shape.dimensions[d] else -1 if part.start else 0
        if by:
            parts[d] = replace(part, start=part.start + by, limit=part.limit + by)
            edit.set_attribute(i, "slice", Attribute.of(tuple(parts)))
            return True
    return False


def _another_number(i: Instruction) -> bool:
    if i.literal is None or not i.shape.is_array or not i.shape.element_count:
        return False
    values = np.asarray(i.literal.value)
    changed = ~values if values.dtype == bool else (values + np.ones((), values.dtype)).astype(values.dtype)
    edit.set_literal(i, Literal(i.shape, value=changed))
    return True


def _changed_places(i: Instruction) -> bool:
    if (
        len(i.operands) < 2
        or i.operands[0] is i.operands[1]
        or not i.operands[0].shape.same_values(i.operands[1].shape)
    ):
        return False
    first, second, *others = i.operands
    edit.set_operands(i, [second, first, *others])
    return True


def _turned_round(i: Instruction) -> bool:
    sizes = i.shape.dimensions if i.shape.is_array else ()
    along = [d for d, n in enumerate(sizes) if n > 1]
    return bool(along) and _instead(i, "reverse", {"dimensions": Attribute.of(tuple(along))})


def _opposite(i: Instruction) -> bool:
    if not i.shape.is_array or not i.shape.element_count:
        return False
    kind = i.shape.type
    return _instead(i, "not" if kind.is_integer or kind.kind == "pred" else "negate", {})


def _instead(i: Instruction, opcode: str, attributes: dict[str, Attribute]) -> bool:
    """Put an operation on a result in its place."""
    users = list(i.users)
    made = edit.create(i.computation, opcode, opcode, i.shape, [i], {**attributes})
    for user in users:
        for position, operand in enumerate(user.operands):
            if operand is i:
                edit.replace_operand(user, position, made)
    if i.is_root:
        edit.set_root(i.computation, made)
    return True
