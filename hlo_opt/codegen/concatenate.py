"""The emitter of concatenates: a thread writes its element of each operand's piece."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression
from hlo_opt.plans.concatenate import Pieces, piece_index, root_index
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Pieces], first_block: int, targets: Targets) -> None:
    """Compute all pieces' values before the first write, so that stores can be combined."""
    hero = segment.hero

    def stores(builder: Builder, position: Expression) -> list[Store]:
        pending = []
        for piece in segment.part.pieces:
            index = piece_index(hero, piece, position)
            for number in segment.roots:
                root = plan.region.roots[number]
                ((pointer, shape),) = targets[number]
                at = root_index(hero, root, index)
                pending.append(Store(pointer, shape, at, builder.value(root, at)))
        return sorted(pending, key=lambda store: store.pointer.text)

    elements_of_thread(builder, plan, segment, first_block, segment.part.shape.element_count, stores)
