"""Dead code elimination. Source: xla/hlo/transforms/simplifiers/hlo_dce.cc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.properties import effectful_computations, has_side_effect
from hlo_opt.ir import Computation, Module, edit
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove what nothing uses. Parameters, side effects and ends of control dependencies stay. It cleans up behind rewrites, and is none that counts as a step."""

    name: ClassVar[str] = "dce"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    idempotent: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext) -> bool:
        effects = effectful_computations(list(module.computations))
        changed = remove_uncalled(module)
        swept = False
        for computation in list(module.computations):
            swept |= sweep(computation, effects)
        if swept:
            remove_uncalled(module)
        return changed or swept


def sweep(computation: Computation, effects: set[Computation]) -> bool:
    """Remove what nothing uses from a computation. `effects` are computations that hold side effects. True when anything was removed."""
    ordered = {p for i in computation.instructions for p in i.control_predecessors}
    todo = [i for i in computation.instructions if not i.users]
    changed = False
    while todo:
        instruction = todo.pop()
        if instruction.parent is None or instruction.is_root:
            continue
        if instruction.parameter_number is not None or instruction in ordered or instruction.control_predecessors:
            continue
        if has_side_effect(instruction) or not effects.isdisjoint(instruction.called()):
            continue
        operands = list(instruction.operands)
        edit.remove(instruction)
        changed = True
        todo.extend(o for o in operands if not o.users)
    return changed
