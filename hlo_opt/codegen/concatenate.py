"""The emitter of concatenate plans: a thread writes the elements at its place in each of its pieces."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression
from hlo_opt.plans.concatenate import Pieces, piece_index, root_index
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Pieces], first_block: int, targets: Targets) -> None:
    """All pieces' values come before the first is written, so that neighbours are written together."""
    hero = segment.hero

    def stores(builder: Builder, position: Expression) -> list[Store]:
        found = []
        for piece in segment.part.pieces:
            index = piece_index(hero, piece, position)
            for number in segment.roots:
                root = plan.region.roots[number]
                ((pointer, shape),) = targets[number]
                at = root_index(hero, root, index)
                found.append(Store(pointer, shape, at, builder.value(root, at)))
        return sorted(found, key=lambda store: store.pointer.text)

    elements_of_thread(builder, plan, segment, first_block, segment.part.shape.element_count, stores)
