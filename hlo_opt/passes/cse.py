"""Common subexpression elimination: of equal values of a computation only the first is computed.

Source: xla/service/hlo_cse.cc. Equality is the proof's own value numbering, so a module keeps its graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.numbering import Numbering, Table, Value, all_differ
from hlo_opt.analysis.properties import effectful_computations, has_side_effect
from hlo_opt.ir import Attribute, Computation, Instruction, Module, edit
from hlo_opt.ir.shape import Shape
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Merge equal values. Elided constants are never merged (their values are unknown), nor is anything with
    side effects: each occurrence is another value, but what it gives may be a value that there is already, or nothing
    at all."""

    name: ClassVar[str] = "cse"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    idempotent: ClassVar[bool] = True
    keeps_memory: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext) -> bool:
        numbering = Numbering(module, Table())
        effects = effectful_computations(list(module.computations))
        changed = [
            computation
            for computation in list(module.computations)
            if not all_differ(computation)
            and _merge(computation, numbering.computation(computation, None).values, effects, context)
        ]
        context.memory.changed_inside(changed, module)
        return bool(changed)


def _merge(
    computation: Computation, values: dict[Instruction, Value], effects: set[Computation], context: PassContext
) -> bool:
    first: dict[tuple[Value, Shape, str], Instruction] = {}
    instructions = list(computation.instructions)
    if len({values[i] for i in instructions}) == len(instructions):
        return False
    ordered = {p for i in instructions for p in i.control_predecessors}
    changed = False
    for instruction in instructions:
        if instruction.control_predecessors or instruction in ordered or has_side_effect(instruction):
            continue
        if not effects.isdisjoint(instruction.called()):
            continue
        config = instruction.attributes.get("backend_config")
        text = config.text if isinstance(config, Attribute) else ""
        same = first.setdefault((values[instruction], instruction.shape, text), instruction)
        if same is instruction or instruction.parameter_number is not None:
            continue
        if not instruction.users and not instruction.is_root:
            continue
        if not context.step():
            return changed
        edit.redirect_users(instruction, same)
        edit.remove(instruction)
        changed = True
    return changed
