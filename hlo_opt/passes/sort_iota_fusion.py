"""A sort with an operand of positions counts them itself: sort and iota become one custom fusion.

Source: xla/backends/gpu/transforms/sort_iota_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.fusion.outline import absorb, start_fusion
from hlo_opt.ir import Attribute, Computation, Instruction, edit
from hlo_opt.passes.base import PassContext, RewritingPass


@dataclass(frozen=True)
class SortIotaFusion(RewritingPass):
    """Fuse a sort with the iotas that are its operands, as kind kCustom. Iotas that others use stay for them."""

    name: ClassVar[str] = "sort-iota-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        for sort in [i for i in computation.instructions if i.opcode == "sort"]:
            iotas = [o for o in dict.fromkeys(sort.operands) if _counts_along(o, sort)]
            if iotas and not any(i in waited_for or i.control_predecessors for i in (sort, *iotas)):
                yield partial(_join, sort, iotas, context)


def _join(sort: Instruction, iotas: Iterable[Instruction], context: PassContext) -> None:
    fusion = start_fusion(sort)
    edit.set_attribute(fusion, "kind", Attribute.of("kCustom"))
    for iota in iotas:
        absorb(iota, fusion, context.origins)
    edit.sort(fusion.called_by("calls"))


def _counts_along(operand: Instruction, sort: Instruction) -> bool:
    """Whether the operand is an iota along the dimension that is sorted."""
    if operand.opcode != "iota" or operand.is_root:
        return False
    along = operand.attribute("iota_dimension", int) if "iota_dimension" in operand.attributes else 0
    return along == next(iter(sort.ints("dimensions")), 0)
