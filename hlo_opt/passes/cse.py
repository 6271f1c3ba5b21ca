"""Common subexpression elimination: of equal values of a computation only the first is computed.

Source: xla/service/hlo_cse.cc. Equality is the proof's own value numbering, so a module keeps its graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.numbering import Numbering, Table, ValueNumber, all_differ, is_another_tuple
from hlo_opt.analysis.properties import Effects, has_side_effect
from hlo_opt.ir import Attribute, Computation, Instruction, Module, edit
from hlo_opt.ir.facts import NO_EQUAL_VALUES
from hlo_opt.ir.shape import Shape
from hlo_opt.ir.walk import edited_since, executed_computations
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Merge equal values. Elided constants are never merged (their values are unknown), nor are operations with side
    effects: each of their occurrences is another value, even if its result equals an existing one."""

    name: ClassVar[str] = "cse"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    idempotent: ClassVar[bool] = True
    keeps_memory: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext) -> bool:
        numbering = Numbering(module, Table())
        effects = Effects(module)
        changed: set[Computation] = set()
        executed = set(executed_computations(module))
        distinct = context.memory.distinct
        merged: list[Computation] = []
        for computation in edited_since(module, NO_EQUAL_VALUES):
            # joining kernels makes equal values of no other kind
            known = computation in distinct and not any(map(is_another_tuple, computation.instructions))
            if not known:
                alike = {} if all_differ(computation) else _equal(numbering.computation(computation, None).values)
                if alike:
                    if _merge(computation, alike, effects, context):
                        changed.add(computation)
                    if computation in executed and _are_distinct(alike):
                        merged.append(computation)
                elif computation in executed:
                    distinct.add(computation)
            if not context.exhausted:
                computation.facts[NO_EQUAL_VALUES] = True
        context.memory.changed_inside(changed - {module.entry}, module)  # of the entry it was told each merge
        distinct.update(merged)
        return bool(changed)


def _equal(values: dict[Instruction, ValueNumber]) -> dict[Instruction, ValueNumber]:
    """The values that are those of several instructions."""
    count = Counter(values.values())
    return {i: value for i, value in values.items() if count[value] > 1} if len(count) < len(values) else {}


def _are_distinct(alike: dict[Instruction, ValueNumber]) -> bool:
    """Whether of equal values only one is left that is needed, and that merging may ever replace."""
    left = [v for i, v in alike.items() if i.parent is not None and (i.users or i.is_root) and not has_side_effect(i)]
    return len(set(left)) == len(left)


def _merge(
    computation: Computation, alike: dict[Instruction, ValueNumber], effects: Effects, context: PassContext
) -> bool:
    first: dict[tuple[ValueNumber, Shape, str], Instruction] = {}
    ordered = {p for i in computation.instructions for p in i.control_predecessors}
    changed = False
    for instruction, value in alike.items():
        if instruction.control_predecessors or instruction in ordered or has_side_effect(instruction):
            continue
        if not effects.isdisjoint(instruction.called()):
            continue
        config = instruction.attributes.get("backend_config")
        text = config.text if isinstance(config, Attribute) else ""
        same = first.setdefault((value, instruction.shape, text), instruction)
        if same is instruction or instruction.parameter_number is not None:
            continue
        if not instruction.users and not instruction.is_root:
            continue
        if not context.step():
            return changed
        context.memory.merging(instruction, same)
        edit.redirect_users(instruction, same)
        edit.remove(instruction)
        changed = True
    return changed
