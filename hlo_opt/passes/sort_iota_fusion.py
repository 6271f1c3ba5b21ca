"""A sort that carries positions along counts them itself: sort and iota become one custom fusion.

Source: xla/backends/gpu/transforms/sort_iota_fusion.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.fusion.outline import absorb, start_fusion
from hlo_opt.ir import Attribute, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class SortIotaFusion(Pass):
    """Put the iotas that a sort takes as operands into one fusion of kind kCustom with it. Iotas that others use stay for them."""

    name: ClassVar[str] = "sort-iota-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in executed_computations(module):
            waited_for = {p for i in computation.instructions for p in i.control_predecessors}
            here = False
            for sort in [i for i in computation.instructions if i.opcode == "sort"]:
                iotas = [o for o in dict.fromkeys(sort.operands) if _counts_along(o, sort)]
                if not iotas or any(i in waited_for or i.control_predecessors for i in (sort, *iotas)):
                    continue
                if not context.step():
                    break
                fusion = start_fusion(sort)
                edit.set_attribute(fusion, "kind", Attribute.of("kCustom"))
                for iota in iotas:
                    absorb(iota, fusion, context.origins)
                edit.sort(fusion.called_by("calls"))
                here = True
            if here:
                edit.sort(computation)
            changed |= here
        return changed


def _counts_along(operand: Instruction, sort: Instruction) -> bool:
    """Whether the operand is an iota along the dimension that is sorted."""
    if operand.opcode != "iota" or operand.is_root:
        return False
    along = operand.attribute("iota_dimension", int) if "iota_dimension" in operand.attributes else 0
    return along == next(iter(sort.ints("dimensions")), 0)
