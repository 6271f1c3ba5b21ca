"""Branches that are taken already, and functions that are applied element by element."""

from __future__ import annotations

from hlo_opt.ir import Called, Instruction, array, edit
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.table import branches
from hlo_opt.passes.simplify.reading import known
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_MOST = 64
"""Instructions of a function that is written out."""


@rule(
    "conditional-known",
    "conditional",
    "conditional whose branch is known = call of the branch",
    "it takes that one; a number that names none takes the last",
)
def conditional_known(i: Instruction, site: Site) -> Instruction | None:
    choice, *arguments = i.operands
    number = known(choice)
    callees = [c for value in branches(i) for c in value.computations]
    if number is None or len(callees) != len(arguments):
        return None
    if choice.shape.type.kind == "pred":
        taken = 0 if bool(number) else 1
    else:
        taken = int(number) if 0 <= int(number) < len(callees) else len(callees) - 1
    made = edit.create(i.computation, "call", "call", i.shape, [arguments[taken]], {"to_apply": Called(callees[taken])})
    site.made.append(made)
    return made


@rule(
    "map-of-operations",
    "map",
    "map of a function of elementwise operations = the operations on whole arrays",
    "they are applied element by element in both",
)
def map_of_operations(i: Instruction, site: Site) -> Instruction | None:
    body = i.called_by("to_apply")
    if len(body.instructions) > _MOST or not i.shape.is_array:
        return None
    values: dict[Instruction, Instruction] = {}
    for member in body.instructions:
        spec = find(member.opcode)
        plain = spec is not None and spec.kind is OpKind.ELEMENTWISE and not list(member.called())
        if not plain and member.parameter_number is None and member.literal is None:
            return None
        if not member.shape.is_array or member.shape.rank or member.control_predecessors:
            return None
    for member in body.instructions:
        shape = array(member.shape.type, *i.shape.dimensions)
        if member.parameter_number is not None:
            values[member] = i.operands[member.parameter_number]
        elif member.literal is not None:
            scalar = edit.create(i.computation, "constant", "constant", member.shape, literal=member.literal)
            site.made.append(scalar)
            values[member] = site.spread(scalar, i.shape.dimensions)
        else:
            values[member] = site.again(member, [values[o] for o in member.operands], shape)
    return values[body.root]
