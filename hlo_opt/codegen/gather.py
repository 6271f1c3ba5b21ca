"""The emitter of gathers: the start indices are read once, before the loop over a thread's elements."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread, stores_at
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression, Variable, add, multiply
from hlo_opt.ops.indexing.gather_dimensions import gather_dimensions
from hlo_opt.ops.indexing.table import gather_starts, gathered_index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.gather import Slices
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Slices], first_block: int, targets: Targets) -> None:
    """All elements of a thread are in one slice of each gather."""
    heroes = segment.part.heroes
    starts: list[dict[int, Expression]] = []

    def look_up(thread: Expression) -> None:
        any_element = add(multiply(thread, segment.vector), Variable(0, segment.vector - 1, "element"))
        for hero in heroes:
            offsets = gather_dimensions(hero).offset_dims
            index = physical_index(hero.shape, any_element)
            batch = tuple(e for d, e in enumerate(index) if d not in offsets)
            starts.append(gather_starts(builder, hero, batch))

    def stores(builder: Builder, position: Expression) -> list[Store]:
        for hero, of_hero in zip(heroes, starts, strict=True):
            index = physical_index(hero.shape, position)
            builder.provide(hero, None, index, builder.value(hero.operands[0], gathered_index(hero, index, of_hero)))
        return stores_at(builder, plan, segment, targets, position)

    elements = segment.hero.shape.element_count
    elements_of_thread(builder, plan, segment, first_block, elements, stores, look_up)
