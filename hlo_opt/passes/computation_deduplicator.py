"""Equal computations are one. Source: xla/hlo/transforms/simplifiers/hlo_computation_deduplicator.cc."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.structure import Members, Structures
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.ir import Called, Computation, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import fused
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.text.asynchronous import link


@dataclass(frozen=True)
class ComputationDeduplicator(Pass):
    """Replace equal reducers, comparators and combiners by the first of them. Bodies of fusions, loops,
    branches and calls stay apart, for later passes rewrite each for its own place; so does what is started
    asynchronously, for each start needs a computation of its own."""

    name: ClassVar[str] = "computation-deduplicator"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    idempotent: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext) -> bool:
        apart = {*executed_computations(module), *effectful_computations(list(module.computations)), module.entry}
        every = (i for c in module.computations for i in c.instructions)
        apart.update(c for i in every if link(i.opcode) == "start" for c in i.called())
        first: dict[Hashable, Computation] = {}
        members = Members(Structures())
        changed = False
        for computation in list(module.computations):
            for instruction in computation.instructions:
                if fused(instruction) is not None:
                    continue
                for name, value in list(instruction.attributes.items()):
                    if not isinstance(value, Called) or not apart.isdisjoint(value.computations):
                        continue
                    same = tuple(first.setdefault(_key(c, members), c) for c in value.computations)
                    if same != value.computations and context.step():
                        edit.set_attribute(instruction, name, Called(*same, is_list=value.is_list))
                        changed = True
        if changed:
            remove_uncalled(module)
            edit.sort_computations(module)
        return changed


def _key(computation: Computation, members: Members) -> Hashable:
    """Equal for computations that compute the same of as many values, whatever their names."""
    return members.of_body(computation), *[p.shape for p in computation.parameters]
