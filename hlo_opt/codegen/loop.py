"""The emitter of loop plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import block_of, thread_of
from hlo_opt.codegen.tree import Leave
from hlo_opt.codegen.vectors import MOST_BYTES, Store, Targets, each_element
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, multiply
from hlo_opt.ir.size import always_same
from hlo_opt.ops.code import Code, code
from hlo_opt.plans.loop import Elements, index_in_slice
from hlo_opt.plans.plan import Part, Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Elements], first_block: int, targets: Targets) -> None:
    """Each thread computes `vector` consecutive elements of each slice of each root, or one of the rest."""
    part = segment.part

    def compute(to: Builder, position: Expression) -> list[Store]:
        return [
            store
            for number in range(part.slices)
            for store in stores_at(to, plan, segment, targets, position, number, part.slices)
        ]

    elements_of_thread(builder, plan, segment, first_block, part.of_slice, compute)


def elements_of_thread(
    builder: Builder,
    plan: Plan,
    segment: Segment[Part],
    first_block: int,
    elements: int,
    compute: Callable[[Builder, Expression], Sequence[Store]],
    before: Callable[[Expression], None] | None = None,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Emit a thread that computes `segment.vector` consecutive of `elements` elements, by position, or one of those
    that are left. `before` runs first, with the thread number; `most_bytes` as in `each_element`."""
    threads, rest = divmod(elements, segment.vector)
    stem = "thread" if segment.vector > 1 else "linear"
    position = own_thread(builder, stem, plan, segment, first_block, threads + rest)
    if rest:
        assert isinstance(position, Variable)
        beyond = code("{} >= {}", position, threads)
        with builder.branch(beyond):
            at = builder.declare_index("last", add(position, constant(threads * (segment.vector - 1))))
            for store in compute(builder, at):
                store.emit(builder)
        position = Variable(0, threads - 1, position.name)
        says = Condition(Variable(0, threads + rest - 1, position.name), threads, threads + rest - 1)
        builder.add(Leave(Code(beyond.pieces, says=(says,))))
    if before is not None:
        before(position)
    if segment.vector == 1:
        for store in compute(builder, position):
            store.emit(builder)
        return
    first = multiply(position, segment.vector)
    each_element(
        builder,
        segment.vector,
        lambda b, number: b.declare_index("linear", add(first, number)),
        lambda b, at, _: compute(b, at),
        most_bytes=most_bytes,
    )


def own_thread(
    builder: Builder, stem: str, plan: Plan, segment: Segment[Part], first_block: int, threads: int
) -> Expression:
    """The thread number within a segment; surplus threads return."""
    block = plan.launch.block
    if segment.blocks * block == 1:
        return constant(0)
    number = add(multiply(block_of(first_block, segment.blocks), block), thread_of(block))
    declared = builder.declare(stem, number)
    if not always_same(segment.blocks * block, threads):
        beyond = Condition(Variable(0, number.high, declared.name), threads, number.high)
        builder.add(Leave(Code(code("{} >= {}", declared, threads).pieces, says=(beyond,))))
    return Variable(0, threads - 1, declared.name)


def stores_at(
    builder: Builder,
    plan: Plan,
    segment: Segment[Part],
    targets: Targets,
    position: Expression,
    at_slice: int = 0,
    slices: int = 1,
) -> list[Store]:
    """Compute the element of each root at a position, of one of their slices by its number."""
    stores = []
    for number in segment.roots:
        root = plan.region.roots[number]
        index = index_in_slice(segment.hero, root, position, at_slice, slices)
        for element, (pointer, shape) in enumerate(targets[number]):
            value = builder.element(root, element, index) if root.shape.is_tuple else builder.value(root, index)
            stores.append(Store(pointer, shape, index, value))
    return stores
