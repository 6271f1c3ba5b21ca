"""Conditionals inside what `map` applies to elements: both branches are computed, and the predicate picks.

Source: xla/service/conditional_to_select.cc, which does the same: threads that run the same code have nothing to gain from a branch.
"""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ops.control import branches
from hlo_opt.ops.spec import find


def with_selects(module: Module) -> Module:
    """The module itself where no element of a `map` depends on a conditional, else a copy with selects in their place."""
    if not any(_choices(c) for c in _applied(module)):
        return module
    copy = edit.clone_module(module)
    for computation in _applied(copy):
        for conditional in _choices(computation):
            predicate, *arguments = conditional.operands
            callees = [c for value in branches(conditional) for c in value.computations]
            made = [_copied(c, computation, a) for c, a in zip(callees, arguments, strict=True)]
            select = edit.create(computation, conditional.name, "select", conditional.shape, [predicate, *made])
            edit.replace_all_uses(conditional, select)
            edit.remove(conditional)
        edit.sort(computation)
    return copy


def _copied(callee: Computation, computation: Computation, argument: Instruction) -> Instruction:
    """What a branch computes, in another computation."""
    copies: dict[Instruction, Instruction] = {}
    for i in callee.instructions:
        if i.parameter_number is not None:
            copies[i] = argument
        else:
            copies[i] = edit.clone_into(computation, i, [copies[o] for o in i.operands])
    return copies[callee.root]


def _applied(module: Module) -> list[Computation]:
    found = {i.called_by("to_apply"): None for c in module.computations for i in c.instructions if i.opcode == "map"}
    return list(found)


def _choices(computation: Computation) -> list[Instruction]:
    return [i for i in computation.instructions if i.opcode == "conditional" and _is_choice(i)]


def _is_choice(i: Instruction) -> bool:
    """Whether a conditional picks one of two scalars that can be computed at any time."""
    if not i.shape.is_array or i.operands[0].shape.type.kind != "pred":
        return False
    for called in i.called():
        for inner in called.instructions:
            spec = find(inner.opcode)
            if spec is None or spec.side_effects or next(iter(inner.called()), None) is not None:
                return False
    return True
