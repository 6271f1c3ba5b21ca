"""The emitter of register-transpose plans: a thread computes all elements of its rows, then writes them."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.register_transpose import ShortRows


def emit(builder: Builder, plan: Plan, segment: Segment[ShortRows], first_block: int, targets: Targets) -> None:
    """Each thread has neighbouring rows."""

    def stores(inside: Builder, row: Expression) -> list[Store]:
        made = []
        for number, index in segment.part.written(plan.region, row):
            ((pointer, shape),) = targets[number]
            made.append(Store(pointer, shape, index, inside.value(plan.region.roots[number], index)))
        return made

    elements_of_thread(builder, plan, segment, first_block, segment.part.rows, stores)
