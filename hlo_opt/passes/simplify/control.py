"""Rules for control flow: branches that are known, and functions that are applied element by element."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Called, Computation, Instruction, Shape, array, edit
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.passes.simplify.reading import known
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_MOST = 64
"""The most instructions of a function that is inlined."""


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
        branch = 0 if bool(number) else 1
    else:
        branch = int(number) if 0 <= int(number) < len(callees) else len(callees) - 1
    call = edit.create(
        i.computation, "call", "call", i.shape, [arguments[branch]], {"to_apply": Called(callees[branch])}
    )
    site.created.append(call)
    return call


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
            site.created.append(scalar)
            values[member] = site.spread(scalar, i.shape.dimensions)
        else:
            values[member] = site.again(member, [values[o] for o in member.operands], shape)
    return values[body.root]


@rule(
    "conditional-of-few",
    "conditional",
    "conditional by a truth value whose branches are a few elementwise operations on scalars = select",
    "both branches can be computed, and nothing they do is seen",
)
def conditional_of_few(i: Instruction, site: Site) -> Instruction | None:
    where, *arguments = i.operands
    callees = [c for value in branches(i) for c in value.computations]
    if where.shape.type.kind != "pred" or not i.shape.is_array or i.shape.rank or len(callees) != len(arguments):
        return None
    if not all(_is_short(c) for c in callees):
        return None
    results = []
    for callee, argument in zip(callees, arguments, strict=True):
        values: dict[Instruction, Instruction] = {}
        for member in callee.instructions:
            if member.parameter_number is not None:
                values[member] = argument
            elif member.literal is not None:
                values[member] = site.literal(member.shape, np.asarray(member.literal.value))
            else:
                values[member] = site.again(member, [values[o] for o in member.operands])
        results.append(values[callee.root])
    return site.emit("select", i.shape, where, *results)


_FEW = 8
"""The most operations of a branch that is computed in any case."""


def _is_short(branch: Computation) -> bool:
    """Whether a branch takes an array and works on scalars, without calls and side effects."""
    if len(branch.instructions) > _FEW:
        return False
    for member in branch.instructions:
        if member.parameter_number is not None:
            if member is not branch.root and any(o.shape.rank for o in member.users):
                return False
            continue
        if not member.shape.is_array or member.shape.rank or member.control_predecessors:
            return False
        spec = find(member.opcode)
        plain = spec is not None and spec.kind is OpKind.ELEMENTWISE and not spec.side_effects
        if member.literal is not None:
            if not member.literal.is_known:
                return False
        elif not plain or list(member.called()) or any(o.shape.rank for o in member.operands):
            return False
    return True


@rule(
    "barrier-of-needed",
    "opt-barrier",
    "opt-barrier of a tuple of which elements are read = opt-barrier of those",
    "it gives its operands, and what nobody reads is missed by nobody",
)
def barrier_of_needed(i: Instruction, site: Site) -> Instruction | None:
    values = tuple_elements(i.operands[0])
    numbers = [tuple_index(user) for user in i.users]
    needed = sorted({n for n in numbers if n is not None})
    if values is None or i.is_root or not needed or None in numbers or len(needed) == len(values):
        return None
    kept = [values[n] for n in needed]
    narrow = site.emit("tuple", Shape.tuple_of(*(v.shape for v in kept)), *kept)
    barrier = site.again(i, [narrow], narrow.shape)
    parts = {
        n: site.emit("get-tuple-element", v.shape, barrier, index=k)
        for k, (n, v) in enumerate(zip(needed, kept, strict=True))
    }
    whole = [parts.get(n, v) for n, v in enumerate(values)]
    return site.emit("tuple", i.shape, *whole)
