"""The emitter of outputs that are small arrays for each element of a batch: a thread computes all of one."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression
from hlo_opt.plans.batch import Batch
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Batch], first_block: int, targets: Targets) -> None:
    """Each thread computes its part of each output; all is computed before the first element is written."""

    def compute(inside: Builder, lane: Expression) -> list[Store]:
        return [
            Store(*targets[number][0], index, inside.value(plan.region.roots[number], index))
            for number, index in segment.part.written(plan.region, lane)
        ]

    elements_of_thread(builder, plan, segment, first_block, segment.part.lanes, compute)
