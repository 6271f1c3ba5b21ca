"""Conditionals in the computations that `map` applies: both branches are computed, and a select picks.

Source: xla/service/conditional_to_select.cc, which does the same: threads that run the same code gain nothing from a
branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.spec import find
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.expansion import Expansion


@dataclass(frozen=True)
class ConditionalToSelect(Expansion):
    """Replace each conditional on which an element of a `map` depends by a select."""

    name: ClassVar[str] = "conditional-to-select"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def concerns(self, module: Module) -> bool:
        return any(_choices(c) for c in _applied(module))

    def computations(self, module: Module) -> Iterable[Computation]:
        return _applied(module)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for conditional in _choices(computation):
            yield partial(_select, conditional)


def _select(conditional: Instruction) -> None:
    computation = conditional.computation
    predicate, *arguments = conditional.operands
    callees = [c for value in branches(conditional) for c in value.computations]
    choices = [_copied(c, computation, a) for c, a in zip(callees, arguments, strict=True)]
    select = edit.create(computation, conditional.name, "select", conditional.shape, [predicate, *choices])
    edit.replace_all_uses(conditional, select)
    edit.remove(conditional)


def _copied(callee: Computation, computation: Computation, argument: Instruction) -> Instruction:
    """The value of a branch, copied into another computation."""
    copies: dict[Instruction, Instruction] = {}
    for i in callee.instructions:
        if i.parameter_number is not None:
            copies[i] = argument
        else:
            copies[i] = edit.clone_into(computation, i, [copies[o] for o in i.operands])
    return copies[callee.root]


def _applied(module: Module) -> list[Computation]:
    mapped = {i.called_by("to_apply"): None for c in module.computations for i in c.instructions if i.opcode == "map"}
    return list(mapped)


def _choices(computation: Computation) -> list[Instruction]:
    return [i for i in computation.instructions if i.opcode == "conditional" and _is_choice(i)]


def _is_choice(i: Instruction) -> bool:
    """Whether a conditional picks one of two scalars that can be computed in any case."""
    if not i.shape.is_array or i.operands[0].shape.type.kind != "pred":
        return False
    for called in i.called():
        for inner in called.instructions:
            spec = find(inner.opcode)
            if spec is None or spec.side_effects or next(iter(inner.called()), None) is not None:
                return False
    return True
