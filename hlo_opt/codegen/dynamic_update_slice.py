"""The emitter of in-place updates: a thread writes one or more neighbouring elements of the update at the clamped
start."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression, add
from hlo_opt.ops.indexing.table import clamped_starts
from hlo_opt.plans.dynamic_update_slice import Windows, update_of, window_index
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Windows], first_block: int, targets: Targets) -> None:
    """Read all values before the first write: an update may be computed from what it overwrites."""
    updates = [(update_of(plan.region.roots[n]), targets[n][0][0]) for n in segment.roots]
    starts = [clamped_starts(builder, update, 2, update.operands[1].shape.dimensions) for update, _ in updates]

    def stores(builder: Builder, position: Expression) -> list[Store]:
        indices = [window_index(update, position) for update, _ in updates]
        values = [builder.value(u.operands[1], index) for (u, _), index in zip(updates, indices, strict=True)]
        return [
            Store(pointer, update.shape, tuple(add(r, d) for r, d in zip(start, index, strict=True)), value)
            for (update, pointer), start, index, value in zip(updates, starts, indices, values, strict=True)
        ]

    elements = segment.hero.operands[1].shape.element_count
    elements_of_thread(builder, plan, segment, first_block, elements, stores)
